FROM ghcr.io/prefix-dev/pixi:0.40.0 AS build
WORKDIR /app
COPY pyproject.toml .
RUN pixi install
FROM ubuntu:24.04
COPY --from=build /app/.pixi/envs/default /app/.pixi/envs/default
ENV PATH=/app/.pixi/envs/default/bin:$PATH
CMD ["python", "-m", "mypkg.train"]
