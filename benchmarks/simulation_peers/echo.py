"""Nodes that answer at once: a model a little way off, or an accuracy.

In a file of their own, which Ray's workers import.
"""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

PARAMETERS = 1000


def reply(message: Message, server_round: int) -> Message:
    """What a node answers."""
    node = message.metadata.dst_node_id
    content = RecordDict({"who": ConfigRecord({"client-id": str(node)})})
    content["metrics"] = MetricRecord({"num-examples": 10 + node % 7, "accuracy": 0.5})
    if message.metadata.message_type == "train":
        values = np.full(PARAMETERS, 1e-3 * (node % 5 + server_round), np.float32)
        content["arrays"] = ArrayRecord({"w": Array(values)})
    return Message(content, reply_to=message)


def client_app() -> ClientApp:
    """The app of every node."""
    app = ClientApp()

    @app.train()
    @app.evaluate()
    def answer(message: Message, _: Context) -> Message:
        return reply(message, 1)

    return app
