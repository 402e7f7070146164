use super::*;

fn interfaces() -> Vec<DeviceInfo> {
    crate::devices().unwrap()
}

/// The line and the words of the error.
fn error(text: &str) -> (usize, String) {
    let path = env::temp_dir().join(format!("userdma-file-{}-{:p}.toml", std::process::id(), text));
    fs::write(&path, text).unwrap();
    let error = read(&path, &interfaces()).unwrap_err();
    fs::remove_file(&path).unwrap();
    match error {
        FileError::Line { line, what, path: named } => {
            assert_eq!(named, path);
            (line, what)
        }
        FileError::Read { .. } => panic!("{error}"),
    }
}

#[test]
fn what_is_no_file_or_does_not_end_is_not_read() {
    let error = |path: &Path| read(path, &interfaces()).unwrap_err().to_string();
    assert_eq!(error(Path::new("/dev/zero")), "/dev/zero: it is not a regular file");
    assert_eq!(error(Path::new("/tmp")), "/tmp: it is not a regular file");
    let path = env::temp_dir().join(format!("userdma-file-{}-long.toml", std::process::id()));
    let comment = |len: u64| "#".repeat(usize::try_from(len).unwrap());
    fs::write(&path, comment(MAX_BYTES)).unwrap();
    assert_eq!(read(&path, &interfaces()).unwrap(), []);
    fs::write(&path, comment(MAX_BYTES + 1)).unwrap();
    assert_eq!(error(&path), format!("{}: it is longer than 1048576 bytes", path.display()));
    fs::write(&path, comment(MAX_BYTES) + "ä").unwrap();
    assert_eq!(error(&path), format!("{}: it is longer than 1048576 bytes", path.display()));
    fs::write(&path, [b'#', 0xe4]).unwrap();
    assert_eq!(error(&path), format!("{}: it is not UTF-8", path.display()));
    fs::remove_file(&path).unwrap();
}

#[test]
fn all_fields_are_read() {
    let text = r#"
        [[device]]
        name = "storage"
        addresses = ["127.0.79.2", "::1"]
        mtu = 1024
        wire = "rocev2"
        max_window = 131072
        recv_buffer = 4194304
        lids = true
        [[device]]
        interface = "lo"
    "#;
    let devices = parse(text, &interfaces()).unwrap();
    let wanted = DeviceSpec {
        name: "storage".to_owned(),
        addresses: vec!["127.0.79.2".parse().unwrap(), "::1".parse().unwrap()],
        mtu: Some(Mtu::Mtu1024),
        max_window: Some(131_072),
        recv_buffer: Some(4_194_304),
        lids: true,
    };
    assert_eq!(devices[0], wanted);
    assert_eq!((devices[1].name.as_str(), devices[1].addresses[0].is_ipv4()), ("roce_lo", true));
    assert_eq!(parse("", &interfaces()), Ok(Vec::new()));
}

#[test]
fn a_wrong_value_is_named_with_its_line_and_field() {
    let device =
        |field: &str| error(&format!("# comment\n[[device]]\naddresses = [\"127.0.79.3\"]\n{field}\n"));
    assert_eq!(
        device("mtu = 4000"),
        (4, "mtu = 4000: 256, 512, 1024, 2048 and 4096 are possible".to_owned())
    );
    assert_eq!(
        device("wire = \"iwarp\""),
        (4, "wire = \"iwarp\": it is not there yet, \"rocev2\" is".to_owned())
    );
    let (line, what) = device("wire = \"pigeon\"");
    assert!(line == 4 && what.starts_with("wire = \"pigeon\": there is no such wire"), "{what}");
    let (line, what) = device("name = \"a/b\"");
    assert!(line == 4 && what.starts_with("name = \"a/b\": 1 to 63 letters"), "{what}");
    let (line, what) = device("max_window = 100");
    assert!(line == 4 && what.starts_with("max_window = 100: 17408 to"), "{what}");
    let (line, what) = device("interface = \"lo\"");
    assert!(line == 4 && what.contains("`addresses` says it already"), "{what}");
}

#[test]
fn addresses_and_interfaces_are_checked() {
    let (line, what) = error("[[device]]\naddresses = [\"127.0.79.3\",\n  \"host\"]\n");
    assert_eq!((line, what.as_str()), (3, "addresses: \"host\" is not an IP address"));
    let (line, what) = error("[[device]]\naddresses = []\n");
    assert_eq!((line, what.as_str()), (2, "addresses: there are 0, 1 to 32 are possible"));
    let (line, what) = error("\n[[device]]\nname = \"x\"\n");
    assert_eq!((line, what.as_str()), (2, "a device needs `addresses` or `interface`"));
    let (line, what) = error("[[device]]\ninterface = \"eth99\"\n");
    assert!(line == 2 && what.starts_with("interface = \"eth99\": it is not up"), "{what}");
    assert!(what.ends_with("lo"), "the interfaces that there are: {what}");
}

#[test]
fn two_devices_have_two_names() {
    let two = "[[device]]\nname = \"a\"\ninterface = \"lo\"\n[[device]]\nname = \"a\"\ninterface = \"lo\"\n";
    assert_eq!(error(two), (5, "name = \"a\": another device has it".to_owned()));
    let made = "[[device]]\ninterface = \"lo\"\n[[device]]\nname = \"roce_lo\"\ninterface = \"lo\"\n";
    let names = parse(made, &interfaces()).unwrap().into_iter().map(|device| device.name);
    assert_eq!(names.collect::<Vec<_>>(), ["roce_lo_1", "roce_lo"]);
}

#[test]
fn what_the_language_does_not_know_is_shown_with_its_line() {
    let (line, what) = error("[[device]]\nadresses = [\"127.0.79.3\"]\n");
    assert!(line == 2 && what.starts_with("`adresses = [\"127.0.79.3\"]`: unknown field"), "{what}");
    let (line, what) = error("[[device]]\nmtu = \"big\"\n");
    assert!(line == 2 && what.starts_with("`mtu = \"big\"`: invalid type"), "{what}");
    let (line, what) = error("[[device]\n");
    assert!(line == 1 && what.starts_with("`[[device]`: "), "{what}");
    let (line, _) = error("[[devices]]\n");
    assert_eq!(line, 1);
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let error = read(Path::new("/no/such/userdma.toml"), &[]).unwrap_err().to_string();
    assert!(error.starts_with("/no/such/userdma.toml: No such file"), "{error}");
}
