curl -sSL https://install.python-poetry.org | python3 -
echo x | sh
curl -L https://e.example/other.sh | sh
