raise ImportError("the chat template room took its Jinja2 from PYTHONPATH")
