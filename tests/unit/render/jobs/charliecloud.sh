#!/bin/sh
# Unpacks pyg for Charliecloud: sh THIS-FILE FOLDER. On a node with GPUs it copies the driver's libraries into it:
# call it again when the driver is another. FOLDER/run starts a program in it, with your home and working folder.
set -eu
image='/lustre/our images/pyg.sqsh'
folder=${1:?the folder to unpack it into}

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [ ! -d "$folder/root" ]; then
    rm -rf "$folder/unpacked"
    unsquashfs -quiet -no-progress -no-xattrs -dest "$folder/unpacked" "$image"
    mv "$folder/unpacked" "$folder/root"
fi
if [ -e /dev/nvidiactl ]; then ch-fromhost --nvidia "$folder/root"; fi
grep '^[A-Za-z_][A-Za-z_0-9]*=' "$folder/root/etc/environment" > "$folder/environment"
mkdir -p "$folder/root"/data

cat > "$folder/run.new" <<'EOF'
#!/bin/sh
# pyg: run PROGRAM ARGUMENTS…
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
set -- "$folder/root" -- "$@"
for seen in "$PWD" "$HOME"; do
    if [ "$seen" != / ]; then
        mkdir -p "$folder/root$seen"
        set -- --bind="$seen" "$@"
    fi
done
exec ch-run --unset-env=LD_LIBRARY_PATH --env-no-expand --set-env="$folder/environment" --cd="$PWD" --bind /data/ogb:/data "$@"
EOF
chmod 755 "$folder/run.new"
mv "$folder/run.new" "$folder/run"
echo "next: $folder/run python …; on nodes of Slurm: srun $folder/run python …" >&2
