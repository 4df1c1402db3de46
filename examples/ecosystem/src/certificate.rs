//! A certificate for `localhost` that nobody has signed but itself, new with every run.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate and its key.
pub struct SelfSigned(rcgen::CertifiedKey<rcgen::KeyPair>);

impl SelfSigned {
    pub fn new() -> SelfSigned {
        let names = vec!["localhost".to_owned()];
        SelfSigned(rcgen::generate_simple_self_signed(names).expect("the name is a good one"))
    }

    /// What a client has to trust, as text.
    pub fn pem(&self) -> String {
        self.0.cert.pem()
    }

    /// For a server: TLS 1.3, and these application protocols.
    pub fn server(&self, protocols: &[&str]) -> ServerConfig {
        let key = PrivateKeyDer::Pkcs8(self.0.signing_key.serialize_der().into());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("ring has TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(vec![self.der()], key)
            .expect("the key belongs to the certificate");
        config.alpn_protocols = bytes(protocols);
        config
    }

    /// For a client that trusts this certificate only.
    pub fn client(&self, protocols: &[&str]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.der()).expect("the certificate is whole");
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("ring has TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = bytes(protocols);
        config
    }

    fn der(&self) -> CertificateDer<'static> {
        self.0.cert.der().clone()
    }
}

impl Default for SelfSigned {
    fn default() -> SelfSigned {
        SelfSigned::new()
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn bytes(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols
        .iter()
        .map(|one| one.as_bytes().to_vec())
        .collect()
}
