//! The contract of environments, over those that are not plain local ones: confined, far, contained.

mod attacks;
pub(crate) mod confined;
mod container;
mod escapes;
mod one_rule;
mod planted;
mod rig;
mod run_later;
mod ssh;

/// One test for each behaviour of the contract, in the place that `$place` makes.
macro_rules! contract {
    ($place:path: $($name:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let Some(place) = $place(concat!(module_path!(), "::", stringify!($name))) else {
                return;
            };
            $crate::behaviour::$name(place.env(), &place.dir()).await;
            place.leave().await;
        }
    )*};
}
pub(crate) use contract;

/// The behaviours that every environment has.
macro_rules! whole_contract {
    ($place:path) => {
        $crate::contract::contract!($place:
            output_and_exit_code,
            exports_and_directory_are_reported,
            a_missing_directory_is_126,
            input_is_closed_or_given,
            a_timeout_ends_the_whole_tree,
            an_interrupt_ends_the_whole_tree,
            a_dropped_call_ends_its_command,
            a_background_process_runs_to_its_end,
            a_background_process_takes_input,
            killing_a_background_process_kills_its_tree,
            a_background_process_is_found_again,
            files_are_written_whole,
        );

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn strange_names_large_and_binary_output() {
            let name = concat!(module_path!(), "::strange_names_large_and_binary_output");
            let Some(place) = $place(name) else {
                return;
            };
            $crate::contract::strange_names(place.env(), &place.dir()).await;
            $crate::contract::large_output(place.env(), &place.dir()).await;
            $crate::contract::binary_output(place.env(), &place.dir()).await;
            place.leave().await;
        }
    };
}
pub(crate) use whole_contract;

use std::path::Path;

use hermes_exec::{Environment, Exec, OutputSink, OutputStream, ProcessExit, WriteOptions};

use crate::support::run;

/// Paths with spaces, quotes, line ends and letters of all kinds.
async fn strange_names(env: &dyn Environment, dir: &Path) {
    for name in [
        "with space, it's \"quoted\" $HOME `x`",
        "zwei\nZeilen ünï-文字-🦀",
        "-n",
    ] {
        let sub = dir.join(name);
        let file = sub.join(format!("{name}.txt"));
        let options = WriteOptions {
            create_parents: true,
            ..WriteOptions::default()
        };
        let content = format!("content of {name}");
        let files = env.files();
        files
            .write(&file, content.clone().into(), options)
            .await
            .unwrap();
        let command = Exec::new("cat ./*.txt; printf %s \"${PWD##*/}\" >&2", &sub);
        let (finished, text) = run(env, command).await;
        assert_eq!(finished.exit, ProcessExit::Code(0), "{name:?}: {text}");
        assert!(text.contains("content of"), "{name:?}: {text}");
        assert_eq!(finished.state.unwrap().cwd, sub);
        assert_eq!(
            files.read(&file, 0, 1000).await.unwrap(),
            content.as_bytes()
        );
        let listed = files.list(&sub).await.unwrap();
        assert_eq!(listed[0].0, format!("{name}.txt"));
    }
}

#[derive(Default)]
struct Bytes(Vec<u8>);

impl OutputSink for Bytes {
    fn push(&mut self, _: OutputStream, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// Counts, and checks that nothing is lost or mixed up.
async fn large_output(env: &dyn Environment, dir: &Path) {
    let command = Exec::new(
        "i=0; while [ $i -lt 20000 ]; do echo \"line $i of many, many lines\"; i=$((i+1)); done",
        dir,
    );
    let mut sink = Bytes::default();
    let finished = env.exec(command, &mut sink).await.unwrap();
    assert_eq!(finished.exit, ProcessExit::Code(0));
    let text = String::from_utf8(sink.0).unwrap();
    let wrong = text
        .lines()
        .enumerate()
        .find(|(n, line)| *line != format!("line {n} of many, many lines"));
    assert_eq!(wrong, None);
    assert_eq!(text.lines().count(), 20_000);
}

async fn binary_output(env: &dyn Environment, dir: &Path) {
    let command = Exec::new("printf '\\0\\1\\377\\376a\\0'; exit 9", dir);
    let mut sink = Bytes::default();
    let finished = env.exec(command, &mut sink).await.unwrap();
    assert_eq!(finished.exit, ProcessExit::Code(9));
    assert_eq!(sink.0, b"\0\x01\xff\xfea\0");
}
