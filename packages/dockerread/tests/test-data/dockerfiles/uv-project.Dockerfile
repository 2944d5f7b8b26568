FROM python:3.11-slim
COPY --from=ghcr.io/astral-sh/uv:0.5 /uv /uvx /bin/
ENV UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
WORKDIR /app
COPY pyproject.toml /app/
RUN --mount=type=cache,target=/root/.cache/uv uv sync --no-install-project
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip install --system torch==2.7.1 --index-url https://download.pytorch.org/whl/cu126
ENTRYPOINT ["python", "-u"]
CMD ["-m", "mypkg"]
