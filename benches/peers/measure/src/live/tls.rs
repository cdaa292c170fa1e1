//! The certificate that all servers use, and the TLS parameters that they negotiate with a client.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The lines of openssl about a handshake that we show.
const SHOWN: [&str; 4] =
    ["Cipher is ", "Server Temp Key: ", "Peer signature type: ", "Server public key is "];

/// The certificate that all servers use, and its key.
pub struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificate {
    /// Makes a certificate with openssl, on a curve with which all servers are quick.
    pub fn make(folder: &Path) -> io::Result<Self> {
        let (certificate, key) = (folder.join("live-cert.pem"), folder.join("live-key.pem"));
        let status = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()?
            .status;
        if status.success() {
            Ok(Self { certificate, key })
        } else {
            Err(io::Error::other("openssl cannot make a certificate"))
        }
    }

    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("CERTIFICATE", self.certificate.display().to_string()),
            ("KEY", self.key.display().to_string()),
        ]
    }
}

/// The TLS parameters that a server negotiates with openssl, which offers the same as our load
/// generator: the version and the cipher, the key exchange, the signature, and the key of the
/// certificate. The figures of servers with different parameters must not be compared.
pub fn agreed(address: SocketAddr) -> io::Result<String> {
    let output = Command::new("openssl")
        .args(["s_client", "-alpn", "http/1.1", "-connect"])
        .arg(address.to_string())
        .stdin(Stdio::null())
        .output()?;
    shown(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| io::Error::other("openssl s_client says nothing of a handshake"))
}

fn shown(text: &str) -> Option<String> {
    let version = text.lines().find(|line| line.contains(SHOWN[0]))?.split(", ").nth(1)?.to_owned();
    let parts = SHOWN.iter().filter_map(|name| {
        text.lines().find_map(|line| Some(line.split_once(name)?.1.trim().to_owned()))
    });
    Some([version].into_iter().chain(parts).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_is_told_in_one_line() {
        let text = "CONNECTED(00000003)\n---\nPeer signing digest: SHA256\n\
                    Peer signature type: ECDSA\nServer Temp Key: X25519, 253 bits\n---\n\
                    New, TLSv1.3, Cipher is TLS_AES_256_GCM_SHA384\n\
                    Server public key is 256 bit\n";
        assert_eq!(
            shown(text).unwrap(),
            "TLSv1.3, TLS_AES_256_GCM_SHA384, X25519, 253 bits, ECDSA, 256 bit"
        );
        assert_eq!(shown("connect: Connection refused"), None);
    }
}
