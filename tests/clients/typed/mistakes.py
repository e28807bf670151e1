"""What mypy must refuse, a line each with the code of its error."""

from foretoken import AsyncClient, Client

client = Client()
client.generate("x", temprature=0.5)  # [call-arg]
client.generate("x", temperature="warm")  # [arg-type]
client.generate("x", proposer="oracle")  # [arg-type]
client.generate("x", logit_bias={"a": 1.0})  # [dict-item]
client.generate("x", stream=True)  # [call-arg]
client.generate(7)  # [arg-type]
client.generate(["a", "b"])  # [arg-type]
client.stream("x", stop=[1])  # [list-item]
client.tokenize([1, 2])  # [list-item]
client.detokenize("x")  # [arg-type]
client.generate("x").usage["tokens"]  # [typeddict-item]
client.generate("x").text + 1  # [operator]
client.generate("x").token_ends[0] + ""  # [operator]
client.generate("x").prompt_token_ids.text  # [attr-defined]
client.generate("x").form["tool_format"]  # [index]
client.status()["services"][0]["pid"] + ""  # [operator]
client.metrics()["tokens"]  # [index]
Client(timeout_s="60")  # [arg-type]
AsyncClient().generate("x").text  # [attr-defined]
