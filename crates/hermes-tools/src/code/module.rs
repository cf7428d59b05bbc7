//! Generates the Python module that a program imports, and the program that starts it.

use serde_json::json;

/// How calls reach this process.
pub(super) enum CallTransport<'a> {
    Socket(&'a str),
    Files(&'a str),
}

/// One helper: its parameters in Python and as arguments of the call.
struct PythonHelper {
    name: &'static str,
    parameters: &'static str,
    about: &'static str,
    arguments: &'static str,
}

/// Names, order and defaults are those that existing programs rely on.
const HELPERS: [PythonHelper; 7] = [
    PythonHelper {
        name: "patch",
        parameters: "path=None, old_string=None, new_string=None, replace_all=False, mode=\"replace\", patch=None, cross_profile=False",
        about: "Change a file: old_string to new_string, or mode=\"patch\" with a V4A patch. Returns a dict.",
        arguments: "path=path, old_string=old_string, new_string=new_string, replace_all=replace_all, mode=mode, patch=patch, cross_profile=cross_profile or None",
    },
    PythonHelper {
        name: "read_file",
        parameters: "path, offset=1, limit=500",
        about: "Lines of a file, counted from 1. Returns a dict with content and total_lines.",
        arguments: "path=path, offset=offset, limit=limit",
    },
    PythonHelper {
        name: "search_files",
        parameters: "pattern, target=\"content\", path=\".\", file_glob=None, limit=50, offset=0, output_mode=\"content\", context=0",
        about: "Search in files, or for files (target=\"files\"). Returns a dict with matches.",
        arguments: "pattern=pattern, target=target, path=path, file_glob=file_glob, limit=limit, offset=offset, output_mode=output_mode, context=context",
    },
    PythonHelper {
        name: "terminal",
        parameters: "command, timeout=None, workdir=None",
        about: "Run a shell command and wait for it. Returns a dict with output and exit_code.",
        arguments: "command=command, timeout=timeout, workdir=workdir",
    },
    PythonHelper {
        name: "web_extract",
        parameters: "urls, char_limit=None",
        about: "Read pages as Markdown. Returns a dict with results.",
        arguments: "urls=urls, char_limit=char_limit",
    },
    PythonHelper {
        name: "web_search",
        parameters: "query, limit=5",
        about: "Search the web. Returns a dict with data.web: url, title, description each.",
        arguments: "query=query, limit=limit",
    },
    PythonHelper {
        name: "write_file",
        parameters: "path, content, cross_profile=False",
        about: "Write a whole file. Returns a dict.",
        arguments: "path=path, content=content, cross_profile=cross_profile or None",
    },
];

const COMMON: &str = r#"
def json_parse(text):
    """JSON that may hold raw control characters in its strings."""
    return json.loads(text, strict=False)


def shell_quote(text):
    """`text` as one word of a shell command."""
    return shlex.quote(text)


def retry(fn, max_attempts=3, delay=2):
    """Calls fn again when it raises, after growing pauses."""
    for attempt in range(max_attempts):
        try:
            return fn()
        except Exception:
            if attempt + 1 >= max_attempts:
                raise
            time.sleep(delay * 2 ** attempt)


_decode = json.JSONDecoder(strict=False).decode


def _decoded(answer):
    text = answer["result"]
    try:
        value = _decode(text)
    except ValueError:
        value = None
    if answer["ok"]:
        return text if value is None else value
    if isinstance(value, dict):
        value.setdefault("error", text)
        return value
    return {"error": text}

"#;

/// Every thread has its own connection, so calls of several threads run concurrently.
const SOCKET: &str = r#"
_place = threading.local()


def _connection():
    if getattr(_place, "pid", None) != os.getpid():
        _place.pid = os.getpid()
        _place.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _place.socket.connect(_SOCKET)
        _place.reader = _place.socket.makefile("rb", 65536)
        _place.count = 0
    return _place


def _call(tool, **args):
    place = _connection()
    place.count += 1
    args = {name: value for name, value in args.items() if value is not None}
    request = {"id": place.count, "token": _TOKEN, "tool": tool, "args": args}
    place.socket.sendall(json.dumps(request).encode() + b"\n")
    line = place.reader.readline()
    if not line:
        raise RuntimeError("the agent is gone: no answer to " + tool)
    answer = json.loads(line)
    if answer["id"] != place.count:
        raise RuntimeError("an answer to another call came; this is a bug of the agent")
    return _decoded(answer)

"#;

const FILES: &str = r#"
_lock = threading.Lock()
_count = 0


def _call(tool, **args):
    global _count
    with _lock:
        _count += 1
        number = _count
    args = {name: value for name, value in args.items() if value is not None}
    request = {"id": number, "token": _TOKEN, "tool": tool, "args": args}
    path = os.path.join(_DIRECTORY, "req_%06d" % number)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(request, file)
    os.rename(path + ".tmp", path)
    wanted = os.path.join(_DIRECTORY, "res_%06d" % number)
    pause = 0.02
    while not os.path.exists(wanted):
        time.sleep(pause)
        pause = min(pause * 1.2, 0.25)
    with open(wanted, encoding="utf-8") as file:
        answer = json.load(file)
    os.unlink(wanted)
    return _decoded(answer)

"#;

/// The text of `hermes_tools.py` with only these helpers.
pub(super) fn module(helpers: &[&str], transport: &CallTransport<'_>, token: &str) -> String {
    let (name, value, client) = match transport {
        CallTransport::Socket(path) => ("_SOCKET", path, SOCKET),
        CallTransport::Files(dir) => ("_DIRECTORY", dir, FILES),
    };
    // JSON strings are valid Python strings.
    let mut text = format!(
        "\"\"\"Tools of the agent, for this program alone.\"\"\"\nimport json, os, shlex, socket, threading, time\n\n{name} = {}\n_TOKEN = {}\n{COMMON}{client}",
        json!(value),
        json!(token)
    );
    for helper in HELPERS.iter().filter(|one| helpers.contains(&one.name)) {
        let PythonHelper {
            name,
            parameters,
            about,
            arguments,
        } = helper;
        text.push_str(
            &[
                "\ndef ",
                name,
                "(",
                parameters,
                "):\n    \"\"\"",
                about,
                "\"\"\"\n    return _call(\"",
                name,
                "\", ",
                arguments,
                ")\n\n",
            ]
            .concat(),
        );
    }
    text
}

/// The program that runs the model's program: it adds the module's directory to an isolated interpreter and
/// prints output line by line.
pub(super) fn starter(dir: &str) -> String {
    format!(
        r#"import sys
sys.path.insert(0, {library})
sys.stdout.reconfigure(line_buffering=True)
sys.argv = ["script.py"]
with open({script}, encoding="utf-8") as _file:
    _text = _file.read()
try:
    exec(compile(_text, {script}, "exec"), {{"__name__": "__main__", "__file__": {script}, "__builtins__": __builtins__}})
except Exception as _error:
    import traceback
    # The first frame is this file's.
    traceback.print_exception(type(_error), _error, _error.__traceback__.tb_next)
    sys.exit(1)
"#,
        library = json!(format!("{dir}/lib")),
        script = json!(format!("{dir}/script.py")),
    )
}

/// Names of variables that a program may have, without secret-like names. The first is the mark by which the
/// environment finds leftover processes.
const ALLOWED: &str = "_HERMES_RUN|PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_*|TERM|TZ|TMPDIR|TMP|TEMP|XDG_*|VIRTUAL_ENV|CONDA|CONDA_*|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|http_proxy|https_proxy|no_proxy|all_proxy|HTTP_PROXY|HTTPS_PROXY|NO_PROXY|ALL_PROXY";
const SECRET: &str =
    "*KEY*|*TOKEN*|*SECRET*|*PASSW*|*CREDENTIAL*|*CREDS*|*AUTH*|*DSN*|*WEBHOOK*|*BEARER*";

/// The shell command that starts the program: selects the interpreter and keeps only the allowed variables.
pub(super) fn command(dir: &str, project: bool, passthrough: &[String]) -> String {
    let is_name = |name: &&String| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let names: Vec<&str> = passthrough
        .iter()
        .filter(is_name)
        .map(String::as_str)
        .collect();
    let declared = match names.join("|") {
        names if names.is_empty() => String::new(),
        names => format!("{names}) keep+=(\"$name=${{!name}}\");;"),
    };
    let candidates = if project {
        r#"for at in "${VIRTUAL_ENV:-/nowhere}" "${CONDA_PREFIX:-/nowhere}" "$PWD/.venv" "$PWD/venv"; do
  if [ -x "$at/bin/python" ]; then python=$at/bin/python; break; fi
done
"#
    } else {
        ""
    };
    format!(
        r#"python=
{candidates}[ -n "$python" ] || python=$(type -P python3 || type -P python) || {{ echo "there is no python3 here" >&2; exit 127; }}
keep=()
while read -r name; do
  case $name in
    {declared}
    {SECRET}) ;;
    {ALLOWED}) keep+=("$name=${{!name}}");;
  esac
done < <(compgen -e)
exec env -i "${{keep[@]}}" "$python" -I -B {main}
"#,
        main = quoted(&format!("{dir}/main.py")),
    )
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
