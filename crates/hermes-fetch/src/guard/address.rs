//! Which addresses a fetch may reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Classification of an address for fetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressReach {
    Public,
    /// Not on the public internet; the word says what it is.
    Private(&'static str),
    /// Serves credentials of the machine: never allowed, whatever is configured.
    Metadata,
}

/// Stricter than `hermes_http::is_private_address` on purpose: a page chooses the addresses, so
/// reserved ranges are refused as well, and metadata services always.
///
/// Classifies an address by what it stands for: IPv6 forms that embed an IPv4 address count as that one.
pub fn reach(address: IpAddr) -> AddressReach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

/// Metadata services outside the link-local range: Alibaba, Azure's host, Oracle.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// Amazon, Google.
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

fn reach_v4(address: Ipv4Addr) -> AddressReach {
    // All of link-local: it contains metadata services and nothing else worth reading.
    if address.is_link_local() || METADATA_V4.contains(&address) {
        return AddressReach::Metadata;
    }
    let [a, b, c, _] = address.octets();
    AddressReach::Private(match (a, b, c) {
        (0, ..) => "unspecified",
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => "private",
        (100, 64..=127, _) => "carrier-grade NAT",
        (127, ..) => "loopback",
        (198, 18..=19, _) => "reserved for benchmarks",
        (224..=239, ..) => "multicast",
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 51, 100) | (203, 0, 113) | (240.., ..) => {
            "reserved"
        }
        _ => return AddressReach::Public,
    })
}

fn reach_v6(address: Ipv6Addr) -> AddressReach {
    if METADATA_V6.contains(&address) || address.is_unicast_link_local() {
        return AddressReach::Metadata;
    }
    if address.is_loopback() {
        return AddressReach::Private("loopback");
    }
    if address.is_unspecified() {
        return AddressReach::Private("unspecified");
    }
    let s = address.segments();
    // Mapped, compatible and translated addresses reach the IPv4 host in them.
    if matches!(
        s,
        [0, 0, 0, 0, 0, 0xffff | 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..]
    ) || matches!(s, [0, 0, 0, 0, 0xffff, 0, ..])
    {
        return reach_v4(embedded(s[6], s[7]));
    }
    let tunnel = match s {
        [0x2002, ..] => Some(embedded(s[1], s[2])),
        // Teredo inverts the client's address.
        [0x2001, 0, ..] => Some(embedded(!s[6], !s[7])),
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => Some(embedded(s[6], s[7])),
        _ => None,
    };
    if let Some(inner) = tunnel {
        return match reach_v4(inner) {
            AddressReach::Metadata => AddressReach::Metadata,
            _ => AddressReach::Private("a tunnel"),
        };
    }
    AddressReach::Private(match s[0] {
        0xfc00..=0xfdff => "private",
        0xff00.. => "multicast",
        0x2001 if s[1] == 0xdb8 || matches!(s[1], 0x10..=0x2f) => "reserved",
        0x3fff if s[1] < 0x1000 => "reserved",
        0x2000..=0x3fff => return AddressReach::Public,
        _ => "reserved",
    })
}

fn embedded(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

/// A range of addresses, `198.18.0.0/15`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    base: u128,
    bits: u32,
    v6: bool,
}

impl AddressRange {
    pub fn contains(&self, address: IpAddr) -> bool {
        let (value, v6) = match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)), false),
            IpAddr::V6(address) => (u128::from(address), true),
        };
        let width = if v6 { 128 } else { 32 };
        v6 == self.v6
            && (self.bits == 0 || value >> (width - self.bits) == self.base >> (width - self.bits))
    }
}

impl std::str::FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not an address range; write it like 198.18.0.0/15");
        let (base, bits) = text.trim().split_once('/').ok_or_else(bad)?;
        let base: IpAddr = base.parse().map_err(|_| bad())?;
        let bits: u32 = bits.parse().map_err(|_| bad())?;
        let (base, width, v6) = match base {
            IpAddr::V4(base) => (u128::from(u32::from(base)), 32, false),
            IpAddr::V6(base) => (u128::from(base), 128, true),
        };
        if bits > width {
            return Err(bad());
        }
        Ok(Self { base, bits, v6 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> AddressReach {
        reach(text.parse().unwrap())
    }

    #[test]
    fn the_open_internet_is_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "172.32.0.1",
            "100.128.0.1",
            "198.20.0.1",
            "2606:4700:4700::1111",
            "2a00:1450:4001:81b::200e",
            // A translated address of a public host, as in networks without IPv4.
            "64:ff9b::8.8.8.8",
            "::ffff:8.8.8.8",
        ] {
            assert_eq!(of(text), AddressReach::Public, "{text}");
        }
    }

    #[test]
    fn everything_else_is_not() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "2001:0:53aa:64c:0:fbfe:80ff:fffe",
            "2001:db8::1",
            "2001:10::1",
            "3fff::1",
            "fc00::1",
            "fd12:3456::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "5f00::1",
            "2606:4700::200:5efe:10.0.0.1",
            "2606:4700::5efe:10.0.0.1",
        ] {
            assert!(
                matches!(of(text), AddressReach::Private(_)),
                "{text}: {:?}",
                of(text)
            );
        }
    }

    #[test]
    fn metadata_services_are_known_in_every_disguise() {
        for text in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
            // Teredo, 169.254.169.254 inverted.
            "2001:0:0:0:0:0:5601:5601",
        ] {
            assert_eq!(of(text), AddressReach::Metadata, "{text}");
        }
    }

    #[test]
    fn ranges_are_read_and_contain() {
        let range: AddressRange = "198.18.0.0/15".parse().unwrap();
        assert!(range.contains("198.19.255.1".parse().unwrap()));
        assert!(!range.contains("198.20.0.0".parse().unwrap()));
        assert!(!range.contains("::1".parse().unwrap()));
        let all: AddressRange = "::/0".parse().unwrap();
        assert!(all.contains("fc00::1".parse().unwrap()));
        for bad in ["", "198.18.0.0", "198.18.0.0/33", "x/8", "::/129"] {
            assert!(bad.parse::<AddressRange>().is_err(), "{bad}");
        }
    }
}
