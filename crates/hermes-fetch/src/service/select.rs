//! Who is asked: the key for the job (`web.search_backend`, `web.extract_backend`), then the shared
//! one (`web.backend`), then whoever has credentials, then who needs none.

use hermes_config::schema::Web;

use super::{Access, Backend};

/// The choice, and what is to be said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub backend: Backend,
    /// Why it is not what the settings name.
    pub remark: Option<String>,
}

pub fn select_search(web: &Web, access: &Access) -> Selection {
    let named = [
        ("web.search_backend", web.search_backend.as_str()),
        ("web.backend", web.backend.as_str()),
    ];
    select(&named, access, Backend::searches, Backend::DuckDuckGo)
}

pub fn select_extract(web: &Web, access: &Access) -> Selection {
    let named = [
        ("web.extract_backend", web.extract_backend.as_str()),
        ("web.backend", web.backend.as_str()),
    ];
    select(&named, access, Backend::extracts, Backend::Native)
}

fn select(
    named: &[(&str, &str)],
    access: &Access,
    can: fn(Backend) -> bool,
    last: Backend,
) -> Selection {
    let mut remark = None;
    for (key, name) in named.iter().filter(|(_, name)| !name.is_empty()) {
        let problem = match Backend::from_name(name) {
            Some(backend) if can(backend) && access.has(backend) => {
                return Selection { backend, remark };
            }
            // The shared key names who searches; pages are then read here.
            Some(backend) if !can(backend) => {
                if *key == "web.backend" {
                    continue;
                }
                format!("{key} names {}, which cannot do this", backend.title())
            }
            Some(backend) => format!(
                "{key} names {}, but {} is not set",
                backend.title(),
                backend.variable().unwrap_or("its key")
            ),
            None => format!("{key} names {name:?}, which is unknown"),
        };
        remark.get_or_insert(problem);
    }
    let backend = Backend::ALL
        .into_iter()
        .find(|&backend| backend.variable().is_some() && can(backend) && access.has(backend))
        .unwrap_or(last);
    Selection { backend, remark }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web(backend: &str, search: &str, extract: &str) -> Web {
        Web {
            backend: backend.into(),
            search_backend: search.into(),
            extract_backend: extract.into(),
            ..Web::default()
        }
    }

    fn access(names: &[&str]) -> Access {
        let has = |name: &str| names.contains(&name);
        let key = |name: &str| has(name).then(|| "key".to_owned().into());
        Access {
            tavily: key("tavily"),
            exa: key("exa"),
            parallel: key("parallel"),
            firecrawl: key("firecrawl"),
            brave: key("brave"),
            searxng_url: has("searxng").then(|| "http://x".to_owned()),
            firecrawl_url: has("own firecrawl").then(|| "http://x".to_owned()),
            ..Access::default()
        }
    }

    #[test]
    fn config_then_credentials_then_nothing_needed() {
        use Backend::{Brave, DuckDuckGo, Exa, Firecrawl, Native, Searxng, Tavily};
        for (settings, keys, search, extract) in [
            (web("", "", ""), &[][..], DuckDuckGo, Native),
            (web("", "", ""), &["brave"], Brave, Native),
            (web("", "", ""), &["brave", "searxng"], Searxng, Native),
            (web("", "", ""), &["exa", "tavily"], Tavily, Tavily),
            (web("", "", ""), &["own firecrawl"], Firecrawl, Firecrawl),
            (web("exa", "", ""), &["exa", "tavily"], Exa, Exa),
            (web("exa", "tavily", ""), &["exa", "tavily"], Tavily, Exa),
            (web("", "", "native"), &["tavily"], Tavily, Native),
            (web("searxng", "", ""), &["searxng"], Searxng, Native),
            (web("DDGS", "", ""), &["searxng"], DuckDuckGo, Native),
            (
                web("", "brave-free", ""),
                &["brave", "tavily"],
                Brave,
                Tavily,
            ),
        ] {
            let access = access(keys);
            let (s, e) = (
                select_search(&settings, &access),
                select_extract(&settings, &access),
            );
            assert_eq!(
                (s.backend, e.backend),
                (search, extract),
                "{settings:?} {keys:?}"
            );
            assert_eq!((s.remark, e.remark), (None, None), "{settings:?} {keys:?}");
        }
    }

    #[test]
    fn a_setting_that_cannot_be_followed_is_told() {
        let none = access(&[]);
        let told = |selection: Selection| selection.remark.unwrap();
        assert!(told(select_search(&web("", "searxng", ""), &none)).contains("SEARXNG_URL"));
        assert!(told(select_search(&web("gogle", "", ""), &none)).contains("gogle"));
        assert!(told(select_extract(&web("", "", "brave-free"), &none)).contains("Brave"));
        let both = select_search(&web("tavily", "exa", ""), &access(&["tavily"]));
        assert_eq!(both.backend, Backend::Tavily);
        assert!(both.remark.unwrap().contains("EXA_API_KEY"));
    }
}
