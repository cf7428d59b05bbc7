//! One app in two workspaces of Slack, and the built binary: each is answered by its own bot.

use hermes_testkit::model_server::Reply;
use serde_json::json;

use super::slack::SlackScenario;

/// Two workspaces. The token of the second is where that of one added later is kept.
fn two_workspaces() -> SlackScenario {
    let story = SlackScenario::new("xoxb-T1");
    story.slack.add_workspace("T2");
    story.slack.add_user("T2", "U9", "zoe");
    story.slack.add_channel("T2", "D9", "im");
    story.slack.add_channel("T2", "C9", "channel");
    let saved = json!({"T2": {"token": "xoxb-T2", "team_name": "Second"}});
    story.home.write("slack_tokens.json", saved.to_string());
    story.model.answer_with(|request| {
        let said = request.last_user_text();
        let from = if said.contains("mist") {
            "mist"
        } else {
            "rain"
        };
        Reply::text(&format!("You said {from}."))
    });
    story
}

#[test]
fn each_workspace_is_answered_with_its_own_token() {
    let mut story = two_workspaces();
    story.start();
    let slack = &story.slack;
    let rain = slack.say("T1", "C1", "U1", "<@UBOTT1> what about the rain");
    let mist = slack.say("T2", "C9", "U9", "<@UBOTT2> what about the mist");
    // In this workspace that is nobody.
    slack.say("T2", "C9", "U9", "<@UBOTT1> is not here, is it");
    slack.say("T2", "D9", "U9", "tell me of the mist alone");
    let answer = story.see_text("T1", "C1", "You said rain.");
    assert_eq!(answer["thread_ts"], rain.as_str());
    let answer = story.see_text("T2", "C9", "You said mist.");
    assert_eq!(answer["thread_ts"], mist.as_str());
    story.see_text("T2", "D9", "You said mist.");
    story.until("acknowledged", |slack| slack.unacked() == 0);
    // Nothing more is said from here on.
    story.gateway.take().unwrap().stop();
    let slack = &story.slack;
    for (team, channel) in [("T1", "C1"), ("T2", "C9"), ("T2", "D9")] {
        let answers = slack.answers(team, channel);
        assert_eq!(answers.len(), 1, "{team} {channel}: {answers:#?}");
    }
    let sent = slack.calls_of("chat.postMessage");
    assert_eq!(sent.len(), 3, "{sent:#?}");
    for call in sent {
        let own = if call.args["channel"] == "C1" {
            "xoxb-T1"
        } else {
            "xoxb-T2"
        };
        assert_eq!(call.token, own, "{call:?}");
    }
    // Neither knows what was said to the other.
    let asked = story.model.model_requests();
    assert_eq!(asked.len(), 3);
    let about = |word: &str| {
        let mut found = asked.iter().filter(|one| one.body_text().contains(word));
        found.next().unwrap().body_text()
    };
    assert!(!about("the rain").contains("the mist"));
    assert!(!about("mist alone").contains("the rain"));
}

#[test]
fn a_workspace_that_threw_us_out_does_not_silence_the_other() {
    let mut story = two_workspaces();
    story.slack.revoke("xoxb-T1", "account_inactive");
    story.start();
    story.slack.say("T2", "D9", "U9", "is there mist");
    story.see_text("T2", "D9", "You said mist.");
    assert_eq!(story.count("T2", "D9", "You said mist."), 1);
}
