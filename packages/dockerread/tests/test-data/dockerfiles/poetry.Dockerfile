FROM python:3.11
RUN pip install poetry==1.8.2 && poetry config virtualenvs.create false
WORKDIR /code
COPY pyproject.toml /code/
RUN poetry install --no-root --no-interaction
COPY src /code/src
CMD ["python", "src/model/net.py"]
