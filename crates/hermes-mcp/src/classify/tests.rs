use super::*;

#[test]
fn a_forgotten_session_is_recognised() {
    let markers = SessionMarkers::default();
    let link = LinkSituation {
        transport: TransportKind::Http,
        era: Era::Legacy,
        session: true,
        phase: Phase::Request,
        markers: &markers,
    };
    let failure = rpc(-32602, "Invalid params: Invalid or expired session", &link);
    assert_eq!(failure.class, FailureClass::SessionLost);
}
