//! Examples of the blocking API, both sides in one program, on addresses of their own.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

#[allow(dead_code, reason = "its main is not called here")]
#[path = "../examples/remote_struct.rs"]
mod remote_struct;
#[allow(dead_code, reason = "its main is not called here")]
#[path = "../examples/stream.rs"]
mod stream;

#[test]
fn a_struct_is_written_and_read_back_after_a_mistake() {
    remote_struct::alone("127.0.219.2", "127.0.219.3").unwrap();
    remote_struct::run(&["--help"]).unwrap();
    assert!(remote_struct::run(&["--no"]).unwrap_err().to_string().starts_with("usage"));
    // Nobody listens.
    let error = remote_struct::run(&["--on", "127.0.219.4", "--to", "127.0.219.5"]).unwrap_err();
    assert!(error.to_string().contains("is the owner running?"), "{error}");
}

#[test]
fn a_stream_brings_every_byte() {
    stream::alone(["127.45.41.2", "127.45.41.3"], 50_000_001, "loss=0.001,seed=1").unwrap();
    stream::run(&["--help"]).unwrap();
    assert!(stream::run(&["--to", "127.0.0.1"]).unwrap_err().to_string().starts_with("usage"));
}
