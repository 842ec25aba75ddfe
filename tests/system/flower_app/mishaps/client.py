"""A client that moves the model a known way, unless the plan says otherwise.

The plan is JSON: round -> client -> "nan", "shape", "huge", "boast", "raise" or "sleep".
"""

import json
import time
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    k = int(context.node_config["partition-id"])
    now: Any = message.content.config_records["config"]["server-round"]
    what = json.loads(str(context.run_config["plan"])).get(str(now), {}).get(str(k))
    if what == "raise":
        raise RuntimeError("as planned")
    if what == "sleep":
        time.sleep(300)
    arrays = ArrayRecord()
    for name, array in message.content.array_records["arrays"].items():
        values: Any = array.numpy()
        step = values.dtype.type(0.01 * (k + 1) * now)
        values = values + step if values.dtype.kind == "f" else values + 1
        if name == "a.weight" and what == "nan":
            values[0, 0] = np.nan
        if name == "a.weight" and what == "shape":
            values = values.T.copy()
        if what == "huge" and values.dtype.kind == "f":
            values = np.full_like(values, 1e17)
        arrays[name] = Array(np.asarray(values))
    examples = 1e12 if what == "boast" else 10 * (k + 1)
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": examples})})
    content["client"] = ConfigRecord({"client-id": str(k)})
    return Message(content, reply_to=message)
