//! A request is accepted or refused: the answer uses it up.

use userdma::{AsyncQp, ConnAttr, Init, Request};

async fn answer_twice(request: Request, qp: AsyncQp<Init>) {
    request.reject(b"no").unwrap();
    request.accept(qp, &ConnAttr::default()).await.unwrap();
}

fn main() {}
