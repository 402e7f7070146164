//! The examples of futures, both sides in one program, on addresses of their own.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

#[allow(dead_code, reason = "its main is not called here")]
#[cfg(feature = "tokio")]
#[path = "../examples/async_echo.rs"]
mod async_echo;
#[allow(dead_code, reason = "its main is not called here")]
#[path = "../examples/async_file.rs"]
mod async_file;
#[allow(dead_code, reason = "its main is not called here")]
#[path = "../examples/async_kv.rs"]
mod async_kv;

#[allow(dead_code, reason = "its main is not called here")]
#[cfg(feature = "tokio")]
#[path = "../examples/stream_http.rs"]
mod stream_http;

#[test]
#[cfg(feature = "tokio")]
fn the_echo_server_returns_every_byte() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async_echo::alone("127.0.198.2", "127.0.198.3")).unwrap();
    runtime.block_on(async_echo::run(&["--help"])).unwrap();
    assert!(runtime.block_on(async_echo::run(&["--no"])).unwrap_err().to_string().starts_with("usage"));
}

#[test]
fn the_store_answers_gets_without_its_program() {
    async_kv::alone("127.0.199.2", "127.0.199.3").unwrap();
    async_kv::run(&["--help"]).unwrap();
    assert!(async_kv::run(&["--no"]).unwrap_err().to_string().starts_with("usage"));
}

#[test]
fn the_file_server_serves_the_whole_file() {
    async_file::alone("127.0.200.2", "127.0.200.3").unwrap();
    async_file::run(&["--help"]).unwrap();
    assert!(async_file::run(&["--no"]).unwrap_err().to_string().starts_with("usage"));
}

#[test]
#[cfg(feature = "tokio")]
fn hyper_serves_and_asks_over_streams() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(stream_http::alone("127.45.40.2", "127.45.40.3")).unwrap();
    runtime.block_on(stream_http::run(&["--help"])).unwrap();
    assert!(runtime.block_on(stream_http::run(&["--no"])).unwrap_err().to_string().starts_with("usage"));
}
