//! Containers, by the names that their runtimes give to control groups.

/// Least length of what is taken for a container's number.
const SHORTEST: usize = 12;

/// The number of the container of a control group, as its runtime shows it: the first 12 digits. Runtimes put the whole number at the end
/// of the last part of the path that has one: Docker (`/docker/NUMBER`, `docker-NUMBER.scope`), Podman (`libpod-NUMBER.scope`),
/// containerd and CRI-O below Kubernetes (`cri-containerd-NUMBER.scope`, `crio-NUMBER.scope`, `/kubepods/…/NUMBER`). Empty without one.
pub(crate) fn container(cgroup: &str) -> &str {
    let number = |part: &'_ str| -> Option<usize> {
        let name = part.strip_suffix(".scope").unwrap_or(part);
        let number = name.rsplit(['-', ':']).next().unwrap_or(name);
        let is_number = number.len() == 64 && number.bytes().all(|one| one.is_ascii_hexdigit());
        is_number.then(|| name.len() - number.len())
    };
    let mut parts = cgroup.rsplit('/');
    let found = parts.find_map(|part| Some(&part[number(part)?..][..SHORTEST]));
    found.unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_containers_as_runtimes_show_them() {
        let number = "3f2a9c1b7d04e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e";
        for path in [
            "/docker/N",
            "/system.slice/docker-N.scope",
            "/machine.slice/libpod-N.scope/container",
            "/kubepods/besteffort/pod1/N",
            "/k.slice/cri-containerd-N.scope",
            "/k.slice/crio-N.scope",
            "/a/k.slice:cri-containerd:N",
        ] {
            assert_eq!(container(&path.replace('N', number)), "3f2a9c1b7d04", "{path}");
        }
        for none in ["", "/", "/user.slice/user-0.slice/session-1.scope", "/system.slice/ssh.service"] {
            assert_eq!(container(none), "");
        }
    }
}
