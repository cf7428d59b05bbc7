//! Addresses of this machine and of private networks.

use std::net::IpAddr;

/// Whether an address is on this machine or in a private network.
///
/// `hermes-fetch` has a stricter test on purpose: it decides what a fetched page may reach, so it
/// also refuses reserved ranges, and distinguishes metadata services.
pub fn is_private_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, ..] = address.octets();
            // 100.64.0.0/10: carrier-grade NAT, also used by mesh VPNs.
            let is_shared = a == 100 && (64..128).contains(&b);
            address.is_loopback()
                || address.is_private()
                || address.is_link_local()
                || address.is_unspecified()
                || is_shared
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unique_local()
                || address.is_unicast_link_local()
                || address.is_unspecified()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_public_addresses() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("169.254.169.254", true),
            ("0.0.0.0", true),
            ("100.64.0.1", true),
            ("100.128.0.1", false),
            ("93.184.216.34", false),
            ("::1", true),
            ("fd00::1", true),
            ("fe80::1", true),
            ("::", true),
            ("2606:2800:220:1::1", false),
        ] {
            let parsed = address.parse().unwrap();
            assert_eq!(is_private_address(parsed), expected, "{address}");
        }
    }
}
