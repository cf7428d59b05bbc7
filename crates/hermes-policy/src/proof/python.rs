//! Python programs that provably use no network.

use std::sync::LazyLock;

use regex::Regex;

/// Modules that access neither the network nor other programs.
const MODULES: &str = "json re math cmath itertools collections functools datetime time calendar statistics textwrap string random decimal \
    fractions hashlib csv operator bisect heapq copy enum dataclasses typing pprint difflib unicodedata base64 binascii struct uuid hermes_tools";
/// Names that give access to any module or program.
const REACHES: &str = r"(?x)
    \b_\w | __ | \b(?:bltns|types|contextlib|copyreg|marshal|pickle|linecache|tokenize|weakref|stdlib_re|encodings)\b
    | CodeType|FunctionType|LambdaType|MethodType|ModuleType|new_class
    | \.\s*(?:abc|ast|code|decoder|dis|encoder|gc|keyword|locale|numbers|platform|reprlib|scanner|stat|st|tempfile|warnings)\b
    | \b(?:exec|eval|compile|getattr|setattr|globals|locals|vars|breakpoint|help|modules|builtins|import_module|open|input|codecs|io)\b
    | \b(?:gi|cr|ag|tb|f)_(?:frame|code|back|globals|locals|builtins|next)\b
    | attrgetter|methodcaller|get_type_hints|ForwardRef|forward_ref|singledispatch|Formatter|get_field
    | \b_*(?:os|sys|posix|nt|path|shutil|signal|threading|runpy|pty|ctypes|pkgutil|inspect)\b
    | (?i:socket|subprocess|urllib|http|ssl|ftp|smtp|asyncio|importlib|requests|aiohttp|multiprocessing)";

/// Modules that the modules above contain. They are words of every day, unless they are imported.
const INNER_MODULES: &str = "abc ast code decoder dis encoder gc keyword locale numbers platform reprlib scanner stat st tempfile warnings";

static IMPORT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?m)\b(?:from\s+([\w.]+)\s+import\s*(\([^)]*\)|[^\n;#]*)|import\s+([^\n;#]+))")
        .ok()
});
static REACH: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(REACHES).ok());

/// Whether `text` only imports local modules and names nothing that gives access to others.
pub(crate) fn is_offline_python(text: &str) -> bool {
    let (Some(imports), Some(reach)) = (IMPORT.as_ref(), REACH.as_ref()) else {
        return false;
    };
    let known = |module: &str| MODULES.split_whitespace().any(|known| known == module);
    let is_inner = |word: &str| INNER_MODULES.split_whitespace().any(|inner| inner == word);
    // For Python this ends a line too.
    let text = text.replace('\r', "\n");
    // Characters that Python normalizes, and lines that continue, could hide a name.
    if !text.is_ascii() || text.contains("\\\n") || reach.is_match(&text) {
        return false;
    }
    imports.captures_iter(&text).all(|found| {
        let from = found.get(1).map(|module| module.as_str());
        let taken = found.get(2).map_or("", |list| list.as_str());
        let list = found.get(3).map_or("", |list| list.as_str());
        let mut words = taken.split(|c: char| !(c.is_alphanumeric() || "_*".contains(c)));
        if words.any(|word| word == "*" || is_inner(word)) {
            return false;
        }
        let listed = list
            .split(',')
            .map(|item| item.split_whitespace().next().unwrap_or_default());
        match from {
            Some(module) => known(module),
            None => listed.into_iter().all(known),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_programs_are_known_to_be_offline() {
        assert!(IMPORT.is_some() && REACH.is_some());
        for text in [
            "print(1)",
            "import json, re\nprint(json.dumps({}))",
            "from hermes_tools import read_file\nprint(read_file('a'))",
            "from collections import Counter as C\nprint(C('aa'))",
        ] {
            assert!(is_offline_python(text), "{text}");
        }
        for text in [
            "import os",
            "import json, socket",
            "import json as j, os as o",
            "from urllib.request import urlopen",
            "__import__('os')",
            "import random\nrandom._os.system('x')",
            "import re\nre.enum.sys",
            "exec('x')",
            "import operator\noperator.attrgetter(chr(95) * 2 + 'class' + chr(95) * 2)(())",
            "import string\nstring.Formatter().get_field('0.a', [1], {})",
            "import typing\ndef f(a: 'x'): pass\ntyping.get_type_hints(f)",
            "from functools import singledispatch",
            "import dataclasses\ndataclasses._create_fn('f', [], ['imp' + 'ort soc' + 'ket'])",
            "import uuid\nuuid._get_command_stdout('curl', 'ht' + 'tp:x')",
            "import enum\nenum.bltns",
            "import typing\ntyping.types.CodeType",
            "from typing import types",
            "from typing import (\n    Any,\n    types,\n)",
            "from dataclasses import keyword, abc",
            "import uuid\nuuid.platform",
            "from re import *",
            "from random import _os as o",
            "(x for x in []).gi_frame.f_builtins",
            "help('some_module')",
            "import\\\n os",
            "import\\\ntelnetlib",
            "import json\rimport telnetlib",
            "from json import dumps\rimport nntplib",
            "import json, \\\n imaplib",
            "ｅxec('x')",
        ] {
            assert!(!is_offline_python(text), "{text}");
        }
    }
}
