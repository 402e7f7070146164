//! Disconnecting uses a connection up.

use userdma::{Connection, Inline};

async fn one_word_more(connection: Connection) {
    connection.disconnect().await.unwrap();
    connection.send(Inline(b"oh, and")).await.unwrap();
}

fn main() {}
