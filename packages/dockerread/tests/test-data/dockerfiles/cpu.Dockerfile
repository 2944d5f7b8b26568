FROM python:3.10
RUN pip install torch --index-url https://download.pytorch.org/whl/cpu
RUN pip install torch_geometric torch_scatter -f https://data.pyg.org/whl/torch-2.1.0+cpu.html
RUN pip install pytest
COPY *.py /app/
WORKDIR /app
CMD ["pytest"]
