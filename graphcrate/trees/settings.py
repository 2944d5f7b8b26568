"""How containers of an artifact start: of its configuration, or of what Apptainer and enroot wrote into its files."""

from graphcrate.contracts import texts
from graphcrate.model.contract import Settings
from graphcrate.trees.opened import Opened


def settings_of(opened: Opened, text: texts.Text) -> Settings | None:
    """None for a plain folder. `text` gives a file's content, empty for one that is not there."""
    config, entries = opened.config, opened.tree.entries
    if config is not None:
        run = config.run
        return Settings(
            platform=f"{config.os}/{config.architecture}",
            environment=run.env or (),
            user=run.user or "",
            entrypoint=run.entrypoint or (),
            command=run.cmd or (),
            working_folder=run.working_dir or "",
            volumes=tuple(sorted(run.volumes or ())),
            labels=run.labels or {},
        )
    if texts.SIF_SCRIPT in entries:
        return texts.of_sif(text)
    return texts.of_enroot(text) if texts.ENROOT_SCRIPT in entries else None
