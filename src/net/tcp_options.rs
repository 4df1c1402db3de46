//! The options of a TCP socket, before and after it is connected.
//!
//! - `tcp_options!` is expanded once for each type, which has a method `options` that returns a
//!   `SockRef`.
//! - No value is truncated: see [`option_values`](super::option_values).

/// Defines the options of a TCP socket.
macro_rules! tcp_options {
    ($socket:ident) => {
        impl $socket {
            /// Sets `TCP_NODELAY`: small writes are sent immediately; see [an
            /// example](crate::guide::sockets#options) of all options.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system; the same holds for all options below.
            pub fn set_nodelay(&self, nodelay: bool) -> std::io::Result<()> {
                match self.kept_nodelay() {
                    Some(kept) => Ok(kept.store(nodelay, crate::sync::Ordering::Relaxed)),
                    None => self.options().set_tcp_nodelay(nodelay),
                }
            }

            /// Returns `TCP_NODELAY`.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn nodelay(&self) -> std::io::Result<bool> {
                match self.kept_nodelay() {
                    Some(kept) => Ok(kept.load(crate::sync::Ordering::Relaxed)),
                    None => self.options().tcp_nodelay(),
                }
            }

            /// Sets the time to live of outgoing packets (`IP_TTL`).
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system; `InvalidInput` for more than 255.
            pub fn set_ttl(&self, ttl: u32) -> std::io::Result<()> {
                let ttl = crate::net::option_values::one_byte("time to live", ttl)?;
                self.options().set_ttl_v4(ttl)
            }

            /// Returns the time to live of outgoing packets.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn ttl(&self) -> std::io::Result<u32> {
                self.options().ttl_v4()
            }

            /// Sets `SO_LINGER`: how long closing waits for unsent data; `Some(ZERO)` resets the connection.
            ///
            /// Dropping the stream closes it, and the close blocks although the socket is non-blocking:
            /// with any time other than zero, do not drop the stream on a loop. The system counts whole
            /// seconds: fractions are rounded up, and values beyond its range are clamped.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn set_linger(&self, linger: Option<std::time::Duration>) -> std::io::Result<()> {
                self.note_linger(linger);
                self.options()
                    .set_linger(linger.map(crate::net::option_values::whole_seconds))
            }

            /// Returns `SO_LINGER`.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn linger(&self) -> std::io::Result<Option<std::time::Duration>> {
                self.options().linger()
            }

            /// Sends keep-alive probes after the connection was idle for this long, rounded up to whole
            /// seconds; `None` turns them off.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system, for example for a time that is zero or too long
            /// (Linux: more than 32,767 s); nothing is changed then.
            pub fn set_keepalive(&self, idle: Option<std::time::Duration>) -> std::io::Result<()> {
                let Some(idle) = idle else {
                    return self.options().set_keepalive(false);
                };
                let before = self.keepalive()?;
                let probes = socket2::TcpKeepalive::new()
                    .with_time(crate::net::option_values::whole_seconds(idle));
                let set = self.options().set_tcp_keepalive(&probes);
                if set.is_err() {
                    // The call enables the probes before it sets the time.
                    self.options().set_keepalive(before)?;
                }
                set
            }

            /// Returns whether keep-alive probes are sent.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn keepalive(&self) -> std::io::Result<bool> {
                self.options().keepalive()
            }

            /// Sets the size of the system's receive buffer, in bytes.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn set_recv_buffer_size(&self, bytes: usize) -> std::io::Result<()> {
                self.options()
                    .set_recv_buffer_size(bytes.min(crate::net::option_values::MAX_OPTION))
            }

            /// Returns the size of the system's receive buffer, in bytes.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn recv_buffer_size(&self) -> std::io::Result<usize> {
                self.options().recv_buffer_size()
            }

            /// Sets the size of the system's send buffer, in bytes.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn set_send_buffer_size(&self, bytes: usize) -> std::io::Result<()> {
                self.options()
                    .set_send_buffer_size(bytes.min(crate::net::option_values::MAX_OPTION))
            }

            /// Returns the size of the system's send buffer, in bytes.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn send_buffer_size(&self) -> std::io::Result<usize> {
                self.options().send_buffer_size()
            }

            /// Sets the type of service of outgoing IPv4 packets (`IP_TOS`), which DSCP and ECN share.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system; `InvalidInput` for more than 255.
            pub fn set_tos_v4(&self, tos: u32) -> std::io::Result<()> {
                let tos = crate::net::option_values::one_byte("type of service", tos)?;
                self.options().set_tos_v4(tos)
            }

            /// Returns the type of service of outgoing IPv4 packets.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn tos_v4(&self) -> std::io::Result<u32> {
                self.options().tos_v4()
            }

            /// Sets the traffic class of outgoing IPv6 packets (`IPV6_TCLASS`).
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system; `InvalidInput` for more than 255.
            pub fn set_tclass_v6(&self, class: u32) -> std::io::Result<()> {
                let class = crate::net::option_values::one_byte("traffic class", class)?;
                self.options().set_tclass_v6(class)
            }

            /// Returns the traffic class of outgoing IPv6 packets.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn tclass_v6(&self) -> std::io::Result<u32> {
                self.options().tclass_v6()
            }
        }
    };
}

pub(super) use tcp_options;
