//! Our reading of files against the original's own, where it is installed.

use std::io::Write as _;
use std::process::{Command, Stdio};

use hermes_config::edit::{ConfigDoc, KeyPath};
use hermes_config::{Config, Env, ProcessEnv, yaml};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::support::TestHome;

/// Runs a script of the original's Python with JSON in and out. `None`: it is not installed.
fn python(test: &str, script: &str, input: &Value, vars: &[(&str, &str)]) -> Option<Value> {
    let oracle = hermes_testkit::oracle::require(test)?;
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new(oracle.python())
        .args(["-c", script])
        .env_clear()
        .env("HOME", home.path())
        .env("HERMES_HOME", home.path().join(".hermes"))
        .env("HERMES_MANAGED_DIR", home.path().join("none"))
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(vars.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.to_string().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let line = String::from_utf8(output.stdout).unwrap();
    Some(serde_json::from_str(line.lines().last().unwrap()).unwrap())
}

/// Turns what JSON lacks into what we make of it.
const PLAIN: &str = r"
import datetime, json, math, sys, yaml
def plain(v):
    if isinstance(v, bool) or v is None or isinstance(v, str): return v
    if isinstance(v, int): return v if -2**63 <= v < 2**64 else '$other'
    if isinstance(v, float): return v if math.isfinite(v) else '$other'
    if isinstance(v, (datetime.date, datetime.datetime)): return v.isoformat()
    if isinstance(v, dict): return {k if isinstance(k, str) else str(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)): return [plain(x) for x in v]
    return '$other'
";

/// Equal, where `$other` stands for a number or type that we keep as text.
fn same(theirs: &Value, ours: &Value) -> bool {
    match (theirs, ours) {
        (Value::String(other), Value::String(_)) if other == "$other" => true,
        (Value::Number(a), Value::Number(b)) => {
            a.as_f64() == b.as_f64() && a.is_f64() == b.is_f64()
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

const SCALARS: &str = "yes Yes YES yEs no No NO true True TRUE tRue false False FALSE on On ON off Off OFF y Y n N \
    null Null NULL nUll ~ ~~ none None nil 0 -0 +0 00 007 012 08 09 0o17 0O17 0x 0xFF 0xfg -0x1F +0x1 0b 0b101 0b102 -0b11 \
    1 +1 -1 1_000 1__0 _1 1_ -1_000 0_7 0_ 0x_F 0b_1 123456789012345678901234567890 9223372036854775807 \
    -9223372036854775808 18446744073709551615 18446744073709551616 1:30 1:3 01:30 1:60 1:59:59 190:20:30 -1:30 +1:30 \
    0:30 1:30: :30 1:30.5 1:2:3.25 -1:30.5 1:60.5 1.5 1. .5 -.5 +.5 -1.5 +1.5 . .. ... .e1 1e3 1E3 1e+3 1.e+3 1.0e3 1.0e+3 \
    1.5E-3 -1.5e+10 1_0.5_0 1.5.2 1.2.3.4 .inf -.inf +.inf .Inf .INF .iNF .nan .NaN .NAN -.nan inf nan \
    2026-01-02 2026-1-2 2026-1-02 26-01-02 2026-01-02T03:04:05 2026-01-02t03:04:05Z \
    2026-01-02T03:04:05+02:00 2026-01-02T03:04:05-5 2026-01-02T03:04:05.25 2026-01-02T3:04:05.123456789 \
    2026-01-02T03:04:05.5+05:30 2026-01-02T03:04 2026-01 12:30:45 a-b a:b a::b http://x/y?z=1 C:\\dir x#y #x <<x =x x= \
    @home %x -x --x -- --- ?x :x !x &x *x |x >x 1a 0xZZ 1,000 1.000.000 v1.2 3.11 3.10 1e 1e+ + - +- 1+1 é 日本 🏴 a_b \
    /tmp ~/x ${VAR} $x {{x}} [x] {x} 'x' \"x\" 'it''s' \"a\\tb\" \"\\u00e9\" \"\\x41\" `x`";

const DOCUMENTS: &[&str] = &[
    "",
    "\n",
    "# c\n",
    "---\n",
    "--- a\n",
    "a: 1\n...\n",
    "---\na: 1\n---\nb: 2\n",
    "a",
    "- a\n- b\n",
    "a:\n- 1\n- 2\n",
    "a:\n  - 1\n  -\n  - - x\n    - y\n",
    "a: {b: 1, c: [1, 2], d: }\n",
    "a: {b, c: 1}\n",
    "a: {b:1}\n",
    "a: [1, 2,]\n",
    "a: {x: 1,}\n",
    "a: [a, b: c, d]\n",
    "a: {\"b\":1}\n",
    "a: [\n  1, # c\n  2\n]\n",
    "a: one\n  two\n\n  three\n",
    "a: 'one\n\n  two'\n",
    "a: \"one\\\n  two\"\n",
    "a: \"x\\\n\n  y\"\n",
    "a: |\n  x\n  y\n",
    "a: |-\n  x\n",
    "a: |+\n  x\n\n\nb: 1\n",
    "a: >\n  x\n  y\n\n  z\n   more\n",
    "a: >-\n  x\n  y\n",
    "a: |2\n   x\n  y\n",
    "a: |\n\n  x\n",
    "a: | # c\n  x\n",
    "a:\n  # c\n  b: 1 # d\n# e\nc: 2\n",
    "a: &x 1\nb: *x\n",
    "a: &x {k: 1}\nb:\n  <<: *x\n  l: 2\n",
    "a: &x {k: 1}\nb: {<<: *x, k: 2}\n",
    "a: &x {k: 1, m: 1}\nb: &y {k: 2, n: 2}\nc:\n  <<: [*x, *y]\n  z: 1\n",
    "a: &x [1]\nb: [*x, *x]\n",
    "a: *x\n",
    "a: !!str 12\n",
    "a: !!int '12'\n",
    "a: !!float 1\n",
    "a: !!bool yes\n",
    "a: !!null x\n",
    "a: ! 12\n",
    "a: !foo x\n",
    "a: !!timestamp 2026-01-02\n",
    "a: !!python/object:os.system x\n",
    "a: !!map {b: 1}\n",
    "a: !!seq [1]\n",
    "a: 1\na: 2\n",
    "a: 1\nb: 2\na: 3\n",
    "a: 1\n b: 2\n",
    "a:\n  b: 1\n c: 2\n",
    "a: b: c\n",
    "a: - b\n",
    "- a: 1\n  b: 2\n- c\n",
    "a:\n\tb: 1\n",
    "a: [1\n",
    "a: {b: 1\n",
    "a: 'x\n",
    "a: \"x\n",
    "a: \"\\q\"\n",
    "a: x: y\n",
    "? a\n: b\n",
    "? [a]\n: b\n",
    "? a\n",
    "a: @x\n",
    "a: `x`\n",
    "a: %x\n",
    "%YAML 1.1\n---\na: off\n",
    "%YAML 1.2\n---\na: off\n",
    "a:1\n",
    "a :1\n",
    "a : 1\n",
    "\"a\": 1\n'b': 2\n",
    "a: \"x\" y\n",
    "a: 'x'y\n",
    "a: [a]b\n",
    "a: x # y\n",
    "a: x#y\n",
    "a: 'x' # y\n",
    "a: x\\ny\n",
    "a: \"x\\ny\"\n",
    "kettle.box: 1\n",
    "1: a\n2.5: b\n",
    "a:\r\n  b: 1\r\n  c: x\r\n",
    "a: é\nb: 日本 # 語\nc: 🏴\u{200d}☠️\n",
    "a: {b: http://x:1/y, c: 'd, e'}\n",
    "a: [http://x, ${Y}, ~]\n",
    "a: ${X}\nb: \"${Y}/z\"\n",
    "a: *\n",
    "a: &\n",
    "a: -\n",
    "a: ?\n",
    "a: >x\n",
    "a:    \nb:\n",
    "a: ''\nb: \"\"\n",
    "{a: 1, b: {c: 2}}\n",
    "[1, [2, [3]]]\n",
    "a:\n    b:\n        c: 1\n    d: 2\n",
    "a: 12:30\nb: 1:30\n",
    "a: 2026-02-03 04:05:06\n",
    "a: 2026-02-03  04:05:06 Z\n",
    "a: =\n",
    "a: <<\n",
    "a: \u{a0}x\n",
    "a: x\u{2028}y\n",
    "a: \"\\u263a\"\n",
    "a: [yes, no, On]\n",
    "list: [a, b]\nmap: {x: y}\nnested:\n- k: v\n  l:\n  - 1\n- [1, 2]\n",
];

/// Where we knowingly differ. Nothing here changes the meaning of a file that the original reads,
/// but for `?x` and `-` alone as items of a list in brackets, and for keys: theirs may be numbers,
/// ours are always the text.
const DIFFERENT: &[&str] = &[
    "v: [?x, ?x]\n",
    "v: [-, -]\n",
    "v: [1:30:, 1:30:]\n",
    // The original fails on these; we read them.
    "v: [:30, :30]\n",
    "v: [:x, :x]\n",
    "v: [http://x/y?z=1, http://x/y?z=1]\n",
    "v: [&x, &x]\n",
    "v: [|x, |x]\n",
    "v: [>x, >x]\n",
    "a: =\n",
    "a: <<\n",
    "a: x\u{2028}y\n",
];

#[test]
fn yaml_means_what_it_means_to_the_original() {
    let mut texts: Vec<String> = SCALARS
        .split_whitespace()
        .map(|word| format!("v: {word}\n"))
        .collect();
    texts.extend(
        SCALARS
            .split_whitespace()
            .map(|word| format!("v: [{word}, {word}]\n")),
    );
    texts.extend(DOCUMENTS.iter().map(|&text| text.to_owned()));
    let script = format!(
        "{PLAIN}
def read(text):
    try:
        return {{'ok': plain(yaml.safe_load(text))}}
    except Exception as e:
        return {{'error': str(e)}}
print(json.dumps([read(t) for t in json.load(sys.stdin)]))"
    );
    let Some(theirs) = python(
        "yaml_means_what_it_means_to_the_original",
        &script,
        &json!(texts),
        &[],
    ) else {
        return;
    };
    let mut wrong = Vec::new();
    for (text, theirs) in texts.iter().zip(theirs.as_array().unwrap()) {
        let ours = yaml::parse(text);
        let agree = match (&ours, theirs.get("ok")) {
            (Ok((ours, _)), Some(theirs)) => same(theirs, ours),
            (Err(_), None) => true,
            _ => false,
        };
        if !agree && !DIFFERENT.contains(&text.as_str()) {
            wrong.push(format!("{text:?}: theirs {theirs}, ours {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What we write must mean the same to the original: values spelt by us, read by it.
#[test]
fn the_original_reads_what_we_spell() {
    let words: Vec<&str> = SCALARS.split_whitespace().collect();
    let mut values: Vec<Value> = words.iter().map(|&word| json!(word)).collect();
    values.extend([
        json!(""),
        json!(" "),
        json!(" x"),
        json!("x "),
        json!("a: b"),
        json!("a #b"),
        json!("a\nb\n"),
        json!("\t"),
        json!("\u{0}"),
        json!("\u{85}\u{2028}\u{feff}"),
        json!("a,b"),
        json!("[a]"),
        json!("{a}"),
        json!("it's \"quoted\""),
        json!("- x"),
        json!("?"),
        json!(1e300),
        json!(1e-7),
        json!(0.1),
        json!(-5),
        json!(null),
        json!([]),
        json!({}),
        json!([[], {}]),
        json!(u64::MAX),
    ]);
    let mut trees: Vec<Value> = values
        .iter()
        .map(|value| json!({ "k": value, "l": [value, { "m": value }] }))
        .collect();
    trees.extend(
        values
            .iter()
            .filter_map(|value| Some(json!({ value.as_str()?: { value.as_str()?: [1] } }))),
    );
    let texts: Vec<[String; 2]> = trees
        .iter()
        .map(|tree| [yaml::to_block(tree), yaml::to_flow(tree)])
        .collect();
    let script = format!(
        "{PLAIN}
print(json.dumps([[plain(yaml.safe_load(t)) for t in pair] for pair in json.load(sys.stdin)]))"
    );
    let Some(read) = python(
        "the_original_reads_what_we_spell",
        &script,
        &json!(texts),
        &[],
    ) else {
        return;
    };
    for ((tree, text), read) in trees.iter().zip(&texts).zip(read.as_array().unwrap()) {
        for (text, read) in text.iter().zip(read.as_array().unwrap()) {
            assert!(same(read, tree), "{text}\nread as {read}");
        }
    }
}

const CONFIG: &str = "\
# comments
model:
  default: big      # the big one
  provider: custom
  api_key: ${SOME_KEY}
  name: unused
base_url: http://root/v1
max_turns: 7
agent:
  reasoning_effort: off
  personalities:
    poet: |
      verse
terminal:
display: {streaming: true, skin: '${UNSET_VAR}'}
approvals:
  mode: off
  deny: [\"rm -rf /*\"]
delegation:
  max_iterations: 1_0
auxiliary:
  vision: {model: eyes}
  own_task: {model: x}
my_section: {when: 2026-01-02, ratio: 1_000, later: 1:30}
";

const ENV_FILE: &str = "# secrets
SOME_KEY=sk-123 # note
export TELEGRAM_BOT_TOKEN=\"12:AB\"
QUOTED='single $NOT ${SOME_KEY}'
SPACED=\"a \\\"q\\\" # no comment\\n\"
EMPTY=
 INDENTED = x y
BROKEN
AFTER=${EMPTY:-d}${MISSING:-d}${MISSING}
OPENAI_API_KEY=oneOPENROUTER_API_KEY=two
SHELL_VAR=file
";

#[test]
fn a_home_is_loaded_alike() {
    let home = TestHome::new(CONFIG)
        .file(".env", ENV_FILE)
        .var("SHELL_VAR", "shell");
    let script = format!(
        "{PLAIN}
import os
home = os.environ['HERMES_HOME']
os.makedirs(home)
data = json.load(sys.stdin)
open(home + '/config.yaml', 'w').write(data['config'])
open(home + '/.env', 'w').write(data['env'])
from hermes_cli.env_loader import load_hermes_dotenv
load_hermes_dotenv(hermes_home=home)
from hermes_cli.config import load_config
names = data['names']
print(json.dumps({{'tree': plain(load_config()), 'env': {{n: os.environ.get(n) for n in names}}}}))"
    );
    let names = [
        "SOME_KEY",
        "TELEGRAM_BOT_TOKEN",
        "QUOTED",
        "SPACED",
        "EMPTY",
        "INDENTED",
        "BROKEN",
        "AFTER",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
        "SHELL_VAR",
    ];
    let input = json!({ "config": CONFIG, "env": ENV_FILE, "names": names });
    let Some(theirs) = python(
        "a_home_is_loaded_alike",
        &script,
        &input,
        &[("SHELL_VAR", "shell")],
    ) else {
        return;
    };
    let env = home.env();
    for name in names {
        assert_eq!(theirs["env"][name].as_str(), env.get(name), "{name}");
    }
    let ours = home.load().tree;
    let mut wrong = Vec::new();
    differences("", &theirs["tree"], &ours, &mut wrong);
    assert_eq!(wrong, [""; 0]);
}

/// Everything in `theirs` that `ours` lacks or has otherwise.
fn differences(at: &str, theirs: &Value, ours: &Value, out: &mut Vec<String>) {
    // Left out on purpose: phrases and presets of the original's own.
    if ["discord.voice_fx.ack_phrases", "moa.presets"].contains(&at.trim_start_matches('.')) {
        return;
    }
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (key, value) in theirs {
                differences(
                    &format!("{at}.{key}"),
                    value,
                    ours.get(key).unwrap_or(&json!("(none)")),
                    out,
                );
            }
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => {}
        (a, b) if a == b => {}
        (a, b) => out.push(format!("{at}: theirs {a}, ours {b}")),
    }
}

/// The file after our edits means to the original what it means to us.
#[test]
fn the_original_reads_what_we_edited() {
    let home = TestHome::new(CONFIG);
    let mut doc = ConfigDoc::open(&home.home.config_path()).unwrap();
    for (key, value) in [
        ("model.default", json!("off")),
        ("terminal.timeout", json!(90)),
        ("display.new", json!("a, b: c?")),
        ("approvals.deny.0", json!("x # y")),
        ("brand.new.deep", json!([1, {"a": "1:30"}])),
        ("agent.personalities.poet", json!("two\nlines")),
        ("my_section.when", json!("2026-01-02")),
    ] {
        doc.set(&KeyPath::parse(key).unwrap(), &value).unwrap();
    }
    doc.unset(&KeyPath::parse("auxiliary.vision.model").unwrap())
        .unwrap();
    doc.save().unwrap();
    let script = format!("{PLAIN}\nprint(json.dumps(plain(yaml.safe_load(json.load(sys.stdin)))))");
    let text = json!(home.read("config.yaml"));
    let Some(theirs) = python("the_original_reads_what_we_edited", &script, &text, &[]) else {
        return;
    };
    assert_eq!(&theirs, doc.tree());
    assert!(Config::load(&home.home, &Env::from_process(&ProcessEnv::default())).is_ok());
}
