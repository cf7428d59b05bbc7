use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use hermes_core::message::Part;

use super::super::clipboard::{self, ClipboardContent};
use super::super::{Chip, ComposerOutcome};
use super::*;

fn png() -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend([0, 0, 2, 128, 0, 0, 1, 224]);
    png.resize(82 * 1024, 0);
    png
}

fn dropped() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my photo.png");
    fs::write(&path, png()).unwrap();
    (dir, path)
}

#[test]
fn every_way_a_terminal_names_a_dropped_file() {
    let (_dir, path) = dropped();
    let plain = path.display().to_string();
    for paste in [
        plain.clone(),
        format!("'{plain}'"),
        format!("\"{plain}\" "),
        plain.replace(' ', "\\ "),
        format!("file://{}", plain.replace(' ', "%20")),
        format!("file://localhost{}\n", plain.replace(' ', "%20")),
    ] {
        let mut c = composer();
        assert_eq!(c.paste(&paste), ComposerOutcome::Redraw);
        assert_eq!(state(&c), "[image 640×480 png 84 KB] |", "{paste}");
        write(&mut c, "what is it?");
        let submission = sent(press(&mut c, "enter"));
        assert_eq!(submission.text, " what is it?");
        assert_eq!(submission.shown, "[image 640×480 png 84 KB] what is it?");
        assert!(
            matches!(&submission.images[..], [Part::Image { image_url, .. }]
            if image_url.url.starts_with("data:image/png;base64,iVBORw0KGgo"))
        );
    }
}

#[test]
fn a_path_whose_first_letters_were_keys() {
    let (_dir, path) = dropped();
    let path = format!("'{}'", path.display());
    let mut c = composer();
    write(&mut c, "see ");
    write(&mut c, &path[..3]);
    c.paste(&path[3..]);
    assert_eq!(state(&c), "see [image 640×480 png 84 KB] |");
}

#[test]
fn several_files_and_an_image_alone() {
    let (dir, path) = dropped();
    let other = dir.path().join("b.gif");
    fs::write(&other, b"GIF89a\x05\x00\x07\x00").unwrap();
    let mut c = composer();
    c.paste(&format!("'{}' {}", path.display(), other.display()));
    assert_eq!(
        state(&c),
        "[image 640×480 png 84 KB] [image 5×7 gif 10 B] |"
    );
    let submission = sent(press(&mut c, "enter"));
    assert_eq!((submission.text.trim(), submission.images.len()), ("", 2));
}

#[test]
fn other_pastes_are_texts() {
    let (dir, path) = dropped();
    let fake = dir.path().join("fake.png");
    fs::write(&fake, "text").unwrap();
    for paste in [
        fake.display().to_string(),
        dir.path().display().to_string(),
        "/no/such/file.png".to_owned(),
        "my photo.png".to_owned(),
        format!("look at '{}'", path.display()),
        format!("'{}", path.display()),
        "/dev/zero".to_owned(),
    ] {
        let mut c = composer();
        c.paste(&paste);
        assert_eq!(state(&c), format!("{paste}|"));
    }
}

#[test]
fn an_image_that_is_too_large_is_refused_with_a_reason() {
    let (_dir, path) = dropped();
    let mut large = png();
    large.resize(21 * 1024 * 1024, 0);
    fs::write(&path, large).unwrap();
    let mut c = composer();
    let ComposerOutcome::Notice(notice) = c.paste(&format!("'{}'", path.display())) else {
        panic!("it was taken");
    };
    assert!(notice.contains("21 MB is too large"), "{notice}");
    assert_eq!(state(&c), format!("{} |", path.display()), "its path stays");
}

#[test]
fn an_image_whose_file_is_gone_is_still_sent() {
    let (_dir, path) = dropped();
    let mut c = composer();
    c.paste(&path.display().to_string());
    fs::remove_file(&path).unwrap();
    assert_eq!(sent(press(&mut c, "enter")).images.len(), 1);
}

/// Programs that stand for those of the desktop.
fn readers(dir: &std::path::Path, image: &str, text: &str) -> [clipboard::ClipboardProgram; 1] {
    let script = |name: &str, body: &str| -> &'static str {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string().leak()
    };
    [clipboard::ClipboardProgram {
        program: script("image", image),
        image: &[],
        text: Some((script("text", text), &[])),
    }]
}

#[test]
fn the_clipboard_gives_an_image_or_a_text_or_a_reason() {
    let (dir, path) = dropped();
    let cat = format!("cat '{}'", path.display());
    let read = |image: &str, text: &str| clipboard::read(&readers(dir.path(), image, text));
    assert!(
        matches!(read(&cat, "echo no"), Ok(ClipboardContent::Image(Chip::Image(picture)))
        if picture.width == 640 && picture.path.is_none())
    );
    assert!(
        matches!(read("exit 1", "echo hello"), Ok(ClipboardContent::Text(text)) if text == "hello\n")
    );
    assert!(
        matches!(read("echo no image", "printf x"), Ok(ClipboardContent::Text(text)) if text == "x")
    );
    let nothing = read("exit 1", "exit 1").unwrap_err();
    assert!(nothing.contains("neither an image nor a text"), "{nothing}");
    let absent = clipboard::read(&[]).unwrap_err();
    assert!(absent.contains("wl-paste"), "{absent}");
}
