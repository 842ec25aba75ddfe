"""pfl (PyPI `pfl`): its simulated backend, federated averaging or SCAFFOLD, torch's own threads."""

from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from simulation_peers.workload import Rounds, Workload


def rounds(work: Workload, scaffold: bool = False) -> Rounds:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm import SCAFFOLD, FederatedAveraging, NNAlgorithmParams
    from pfl.algorithm.algorithm_utils import run_train_eval
    from pfl.algorithm.scaffold import SCAFFOLDParams
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.data.user_state import InMemoryUserStateStorage
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    module: Any = work.module()
    module.loss = lambda x, y: cross_entropy(module(x), y)
    module.metrics = lambda x, y: {}
    draw = np.random.default_rng(0)

    def client(k: int) -> Any:
        rows = torch.from_numpy(draw.permutation(work.parts[k]))
        return Dataset(raw_data=[work.x[rows], work.y[rows]], user_id=str(k))

    clients = FederatedDataset(
        client, get_user_sampler("minimize_reuse", list(range(len(work.parts))))
    )
    backend = SimulatedBackend(training_data=clients, val_data=None)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    often: dict[str, Any] = {
        "central_num_iterations": 10**9,
        "evaluation_frequency": 10**9,
        "train_cohort_size": work.cohort,
        "val_cohort_size": 0,
    }
    algorithm: Any = SCAFFOLD() if scaffold else FederatedAveraging()
    if scaffold:
        algorithm._server_c = model.get_parameters().apply_elementwise(lambda c: c * 0)
        memory = {"user_state_storage": InMemoryUserStateStorage(), "population": len(work.parts)}
        settings = SCAFFOLDParams(**often, **memory, use_gradient_as_control_variate=False)
    else:
        settings = NNAlgorithmParams(**often)
    training = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=work.eta, local_batch_size=work.batch
    )
    evaluation = NNEvalHyperParams(local_batch_size=None)
    # The body of FederatedAlgorithm.run; iteration 0 alone would evaluate, so it is left out.
    for iteration in range(1, 10**9):
        contexts, model, _ = algorithm.get_next_central_contexts(
            model, iteration, settings, training, evaluation
        )
        results = run_train_eval(algorithm, backend, model, contexts)
        statistics = [
            (context, stats)
            for context, (stats, _) in zip(contexts, results, strict=True)
            if stats is not None
        ]
        model, _ = algorithm.process_aggregated_statistics_from_all_contexts(
            tuple(statistics), results[0][1], model
        )
        yield
