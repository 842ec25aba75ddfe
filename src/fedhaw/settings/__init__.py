"""What one federation is, said once; see `fedhaw.settings.declaration`. Needs no torch."""

from fedhaw.settings.declaration import (
    FORMER_NAMES,
    SETTINGS,
    SPELLINGS,
    SWEEP_SETTINGS,
    FederationSettings,
    Settings,
    SweepSettings,
)
from fedhaw.settings.filling import Place, by_name, described, fill, of_today
from fedhaw.settings.setting import InvalidSetting, Setting
from fedhaw.settings.sources import DataSource, ModelSource, SplitSource

__all__ = [
    "FORMER_NAMES",
    "SETTINGS",
    "SPELLINGS",
    "SWEEP_SETTINGS",
    "DataSource",
    "FederationSettings",
    "InvalidSetting",
    "ModelSource",
    "Place",
    "Setting",
    "Settings",
    "SplitSource",
    "SweepSettings",
    "by_name",
    "described",
    "fill",
    "of_today",
]
