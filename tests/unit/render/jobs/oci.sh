#!/bin/sh
# Writes an OCI bundle of the image, for runc, crun and Slurm's --container: sh THIS-FILE FOLDER. In it you are root, which is
# you outside, and have this working directory as /work. Call it again in another one: only config.json is written then.
set -eu
image='/lustre/our images/pyg.sqsh'
bundle=${1:?the folder of the bundle}

mkdir -p "$bundle"
if [ ! -d "$bundle/rootfs" ]; then
    rm -rf "$bundle/unpacked"
    unsquashfs -quiet -no-progress -no-xattrs -dest "$bundle/unpacked" "$image"
    mv "$bundle/unpacked" "$bundle/rootfs"
fi

# lines as strings of JSON
quoted() {
    sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&"/'
}
{
    cat <<'EOF'
{
  "ociVersion": "1.0.2",
  "process": {
    "args": ["/bin/sh", "-c", "exec python dna.py"],
    "cwd": "/work",
    "noNewPrivileges": true,
    "user": {"uid": 0, "gid": 0},
    "env": [
EOF
    grep '^[A-Za-z_][A-Za-z_0-9]*=' "$bundle/rootfs/etc/environment" | quoted | sed 's/$/,/'
    cat <<'EOF'
"HOME=/tmp", "USER=root"]
  },
  "root": {"path": "rootfs", "readonly": true},
  "mounts": [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64m"]},
    {"destination": "/dev/shm", "type": "none", "source": "/dev/shm", "options": ["rbind"]},
    {"destination": "/sys", "type": "none", "source": "/sys", "options": ["rbind", "nosuid", "noexec", "nodev", "ro"]},
    {"destination": "/tmp", "type": "none", "source": "/tmp", "options": ["rbind"]},
    {"destination": "/etc/hosts", "type": "none", "source": "/etc/hosts", "options": ["bind", "ro"]},
    {"destination": "/etc/resolv.conf", "type": "none", "source": "/etc/resolv.conf", "options": ["bind", "ro"]},
    {"destination": "/data", "type": "none", "source": "/data/o\"gb", "options": ["rbind"]},
    {"destination": "/work", "type": "none", "options": ["rbind"], "source":
EOF
    pwd | quoted
    cat <<EOF
}
  ],
  "linux": {
    "namespaces": [{"type": "mount"}, {"type": "pid"}, {"type": "user"}],
    "uidMappings": [{"containerID": 0, "hostID": $(id -u), "size": 1}],
    "gidMappings": [{"containerID": 0, "hostID": $(id -g), "size": 1}]
  }
}
EOF
} > "$bundle/config.json.new"
mv "$bundle/config.json.new" "$bundle/config.json"
echo "next: runc run --bundle $bundle pyg; with Slurm: srun --container=$bundle python …" >&2
