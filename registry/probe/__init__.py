"""What this machine is: `probe` looks at it, `report` tells a person, and JSON carries it elsewhere.

from engine import Cancel
from registry.probe import probe, report

print(report(probe(models_folder, measurements, Cancel())))
"""

from registry.probe.probing import probe
from registry.probe.reading import measure
from registry.probe.record import from_json, to_json
from registry.probe.report import report
from registry.probe.tree import Battery, Gpu, Memory, Probe, Problem, Processor, Storage, System

__all__ = [
    "Battery",
    "Gpu",
    "Memory",
    "Probe",
    "Problem",
    "Processor",
    "Storage",
    "System",
    "from_json",
    "measure",
    "probe",
    "report",
    "to_json",
]
