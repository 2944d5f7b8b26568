"""The command of JupyterLab in an image. Pure."""

#: Shell, for the image. The token stands in no command line, which every user of a machine can list.
_NOTEBOOK = (
    'port=%s; JUPYTER_TOKEN=$(od -An -N24 -tx1 /dev/urandom | tr -d " \\n"); export JUPYTER_TOKEN; '
    'echo "http://127.0.0.1:$port/lab?token=$JUPYTER_TOKEN"; '
    'echo "from your own machine: ssh -N -L $port:127.0.0.1:$port '
    '${SLURM_SUBMIT_HOST:+-J $SLURM_SUBMIT_HOST }${SLURMD_NODENAME:-%s}"; '
    'exec jupyter lab --no-browser --allow-root --ip 127.0.0.1 --port "$port" --ServerApp.port_retries=0'
)


def notebook(port: str = "$((20000 + SLURM_JOB_ID % 20000))", host: str = "$(hostname)") -> str:
    """Return the command of JupyterLab for loopback alone: its address with the token first, then the way there."""
    return _NOTEBOOK % (port, host)
