#!/bin/sh
# Writes the module pyg/2.3.1 for Lmod and environment-modules below a folder of MODULEPATH: sh THIS-FILE FOLDER
set -eu
umask 022  # all users load it
folder=${1:?the folder of modulefiles, as module use takes it}
name=pyg/2.3.1
programs=$folder/.graphcrate/$name
mkdir -p "$programs" "$(dirname "$folder/$name")"

cat > "$programs/run.new" <<'EOF'
#!/bin/sh
# pyg/2.3.1: the program by whose name this is called, in the image. It sees your home and working folder.
image='/site/our images/pyg.sif'
program=${0##*/}
case $program:${1-} in
    pip*:install | pip*:uninstall)
        echo "$program: nothing can be installed into the image of this module, which is read-only" >&2
        echo "next: graphcrate builds one with more packages: make image WITH=PACKAGE" >&2
        exit 2
        ;;
esac
gpus=
if [ -e /dev/nvidiactl ]; then gpus=--nv; fi
exec singularity exec ${gpus:+"$gpus"} --bind /data/ogb:/data "$image" "$program" "$@"
EOF
chmod 755 "$programs/run.new"
mv "$programs/run.new" "$programs/run"
for program in python python3 pip pip3 torchrun jupyter; do
    ln -sf run "$programs/$program"
done

cat > "$programs/module.new" <<'EOF'
#%Module1.0
module-whatis {pyg/2.3.1: PyTorch and PyG in an image, called by python, torchrun and jupyter}
proc ModulesHelp { } {
    puts stderr {python, torchrun, jupyter and pip of this module run in an image, which has packages of its own.}
}
conflict pyg
set here [file dirname $ModulesCurrentModulefile]
prepend-path PATH $here/../.graphcrate/pyg/2.3.1
EOF
mv "$programs/module.new" "$folder/$name"
echo "next: module use '$folder'; module load $name" >&2
