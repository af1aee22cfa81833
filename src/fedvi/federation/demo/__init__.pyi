from fedvi.federation.demo.checking import Check as Check
from fedvi.federation.demo.local import LocalFederation as LocalFederation
from fedvi.federation.demo.run import DemoReport as DemoReport
from fedvi.federation.demo.run import Speed as Speed
from fedvi.federation.demo.run import demonstrate as demonstrate
from fedvi.federation.demo.run import measure_speed as measure_speed
