//! Selects a service: the specific setting (`web.search_backend`, `web.extract_backend`), then the shared one
//! (`web.backend`), then one with credentials, then one that needs none.

use hermes_config::schema::Web;

use super::{ServiceAccess, WebBackend};

/// The selection, and a note about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub backend: WebBackend,
    /// Why it differs from the settings.
    pub remark: Option<String>,
}

pub fn select_search(web: &Web, access: &ServiceAccess) -> Selection {
    let named = [
        ("web.search_backend", web.search_backend.as_str()),
        ("web.backend", web.backend.as_str()),
    ];
    select(&named, access, WebBackend::searches, WebBackend::DuckDuckGo)
}

pub fn select_extract(web: &Web, access: &ServiceAccess) -> Selection {
    let named = [
        ("web.extract_backend", web.extract_backend.as_str()),
        ("web.backend", web.backend.as_str()),
    ];
    select(&named, access, WebBackend::extracts, WebBackend::Native)
}

fn select(
    named: &[(&str, &str)],
    access: &ServiceAccess,
    can: fn(WebBackend) -> bool,
    last: WebBackend,
) -> Selection {
    let mut remark = None;
    for (key, name) in named.iter().filter(|(_, name)| !name.is_empty()) {
        let problem = match WebBackend::from_name(name) {
            Some(backend) if can(backend) && access.has(backend) => {
                return Selection { backend, remark };
            }
            // The shared setting names the search service; pages are then read here.
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
    let backend = WebBackend::ALL
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

    fn access(names: &[&str]) -> ServiceAccess {
        let has = |name: &str| names.contains(&name);
        let key = |name: &str| has(name).then(|| "key".to_owned().into());
        ServiceAccess {
            tavily: key("tavily"),
            exa: key("exa"),
            parallel: key("parallel"),
            firecrawl: key("firecrawl"),
            brave: key("brave"),
            searxng_url: has("searxng").then(|| "http://x".to_owned()),
            firecrawl_url: has("own firecrawl").then(|| "http://x".to_owned()),
            ..ServiceAccess::default()
        }
    }

    #[test]
    fn config_then_credentials_then_nothing_needed() {
        use WebBackend::{Brave, DuckDuckGo, Exa, Firecrawl, Native, Searxng, Tavily};
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
        assert_eq!(both.backend, WebBackend::Tavily);
        assert!(both.remark.unwrap().contains("EXA_API_KEY"));
    }
}
