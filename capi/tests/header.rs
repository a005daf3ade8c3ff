//! The header that is generated is the one that is there.

use std::path::Path;

/// `alluvion/raw.h`, as it would be written now.
fn generated(folder: &Path) -> String {
    let config =
        cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("the configuration is there");
    let bindings = cbindgen::Builder::new().with_crate(folder).with_config(config).generate();
    let mut text = Vec::new();
    bindings.expect("the crate can be read").write(&mut text);
    String::from_utf8(text).expect("the header is UTF-8")
}

#[test]
fn the_header_is_that_of_the_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join("include/alluvion/raw.h");
    let now = generated(folder);
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &now).expect("the header can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = kept.lines().zip(now.lines()).position(|(kept, now)| kept != now);
    assert!(
        kept == now,
        "alluvion/raw.h is another one from line {:?}: UPDATE_HEADER=1 cargo test -p alluvion-capi --test header",
        differs.map(|line| line + 1),
    );
}
