//! Speech with programs of others: flite speaks, pocketsphinx listens.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use hermes_gateway::{HomeSynthesizer, HomeTranscriber, Transcriber as _};
use hermes_platforms::PlatformHttp;
use hermes_testkit::web_server::{Page, WebServer};
use serde_json::{Value, json};

const LISTENER: &str = "import sys, wave
from pocketsphinx import Decoder
with wave.open(sys.argv[1]) as recording:
    decoder = Decoder(samprate=recording.getframerate())
    decoder.start_utt()
    decoder.process_raw(recording.readframes(recording.getnframes()), full_utt=True)
    decoder.end_utt()
    print(decoder.hyp().hypstr if decoder.hyp() else '')
";

fn unpacked(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let found = root.join(path);
    assert!(found.exists(), "{path} is missing; run: cargo xtask setup");
    found
}

fn env(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(pair).collect()
}

fn http() -> PlatformHttp {
    PlatformHttp::new(&HashMap::new(), None)
}

fn ears(stt: &Value, env: &HashMap<String, String>) -> HomeTranscriber {
    let named = stt["provider"].as_str();
    HomeTranscriber::new(Some(stt), named, env, http())
}

fn mouth(tts: &Value, env: &HashMap<String, String>) -> HomeSynthesizer {
    let named = tts["provider"].as_str();
    HomeSynthesizer::new(Some(tts), named, env, http())
}

#[tokio::test]
async fn what_is_spoken_is_heard() {
    let root = unpacked("exec/root");
    let python = unpacked("voice-sdk/bin/python");
    let dir = tempfile::tempdir().unwrap();
    let flite = format!(
        "LD_LIBRARY_PATH={} {} -voice slt -f {{input_path}} -o {{output_path}}",
        root.join("usr/lib/x86_64-linux-gnu").display(),
        root.join("usr/bin/flite").display()
    );
    let tts = json!({
        "provider": "mine",
        "providers": {"mine": {"type": "command", "command": flite, "output_format": "wav"}}
    });
    let said = "**Hello**, please open the door.";
    let recording = mouth(&tts, &env(&[]))
        .speak(said, dir.path())
        .await
        .unwrap();
    let script = dir.path().join("listen it's.py");
    std::fs::write(&script, LISTENER).unwrap();
    let command = format!(
        "{} \"{}\" {{input_path}} 2>/dev/null",
        python.display(),
        script.display()
    );
    // Named by nobody: the command is there, so it is used.
    let heard = ears(&json!({}), &env(&[("HERMES_LOCAL_STT_COMMAND", &command)]));
    let words = heard.transcribe(&recording).await.unwrap();
    assert!(words.contains("hello please open the"), "{words}");
}

#[tokio::test]
async fn a_service_gets_the_recording_as_a_form() {
    let server = WebServer::start(|_| Page::json(&json!({"text": " Guten Tag. "})));
    let dir = tempfile::tempdir().unwrap();
    let memo = dir.path().join("memo.ogg");
    std::fs::write(&memo, b"OggS\0\r\n--recording").unwrap();
    let stt =
        json!({"provider": "groq", "groq": {"base_url": server.url("/v1"), "language": "de"}});
    let ears = ears(&stt, &env(&[("GROQ_API_KEY", "key")]));
    assert_eq!(ears.transcribe(&memo).await.unwrap(), "Guten Tag.");
    let asked = server.asked().pop().unwrap();
    assert_eq!(asked.path, "/v1/audio/transcriptions");
    assert_eq!(asked.header("authorization"), Some("Bearer key"));
    let kind = asked.header("content-type").unwrap();
    let boundary = kind.split_once("boundary=").unwrap().1;
    let body = String::from_utf8_lossy(&asked.body).into_owned();
    let parts: Vec<&str> = body.split(&format!("--{boundary}")).collect();
    assert_eq!(parts.len(), 6, "{body}");
    assert!(
        parts[3].contains("name=\"language\"\r\n\r\nde\r\n"),
        "{body}"
    );
    assert!(parts[4].contains("name=\"file\"; filename=\"memo.ogg\"\r\nContent-Type: audio/ogg"));
    assert!(
        parts[4].ends_with("\r\n\r\nOggS\0\r\n--recording\r\n"),
        "{body}"
    );
    assert_eq!(parts[5], "--\r\n");
}

#[tokio::test]
async fn a_service_speaks() {
    let server = WebServer::start(|_| Page::new("audio/ogg", b"OggS speech".to_vec()));
    let dir = tempfile::tempdir().unwrap();
    let tts =
        json!({"provider": "openai", "openai": {"base_url": server.url("/v1"), "voice": "ash"}});
    let speaker = mouth(&tts, &env(&[("VOICE_TOOLS_OPENAI_KEY", "key")]));
    let recording = speaker.speak("Good **day**", dir.path()).await.unwrap();
    assert_eq!(std::fs::read(&recording).unwrap(), b"OggS speech");
    let body = server.asked().pop().unwrap().json();
    assert_eq!(body["input"], "Good day");
    assert_eq!(body["voice"], "ash");
}

#[tokio::test]
async fn a_failure_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let memo = dir.path().join("memo.ogg");
    std::fs::write(&memo, b"x").unwrap();
    let server = WebServer::start(|_| Page::new("text/plain", "no credit").status(402));
    let base = server.url("");
    let cases = [
        (json!({"enabled": false}), vec![], "stt.enabled"),
        (json!({}), vec![], "GROQ_API_KEY"),
        (
            json!({"provider": "groq"}),
            vec![("OPENAI_API_KEY", "k")],
            "needs GROQ_API_KEY",
        ),
        (
            json!({"provider": "local"}),
            vec![("GROQ_API_KEY", "k")],
            "HERMES_LOCAL_STT_COMMAND",
        ),
        (
            json!({"provider": "nobody"}),
            vec![],
            "stt.providers.nobody",
        ),
        (
            json!({"provider": "openai", "openai": {"base_url": base}}),
            vec![("OPENAI_API_KEY", "k")],
            "402 Payment Required: no credit",
        ),
        (
            json!({"provider": "mine", "providers": {"mine": {"command": "true"}}}),
            vec![],
            "no speech was recognised",
        ),
    ];
    for (stt, vars, expected) in cases {
        let why = ears(&stt, &env(&vars)).transcribe(&memo).await.unwrap_err();
        assert!(why.contains(expected), "{stt}: {why}");
    }
    let silent = mouth(&json!({}), &env(&[])).speak("hi", dir.path()).await;
    assert!(silent.unwrap_err().contains("espeak-ng"));
}
