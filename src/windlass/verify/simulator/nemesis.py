"""What goes wrong in a run, by its timetable, and how it is put right again."""

# A failover is an exchange of the store's insides.
# ruff: noqa: SLF001

import copy
from typing import TYPE_CHECKING

from windlass.verify import history
from windlass.verify.simulator.loop import START, SimProcess
from windlass.verify.simulator.plan import Fault
from windlass.verify.simulator.wire import Weather

if TYPE_CHECKING:
    from windlass.verify.simulator.machine import Machine, SimChild
    from windlass.verify.simulator.world import World


class Nemesis:
    """Carries out the faults of a plan. Everything happens in the world's name, outside of any process."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._frozen: list[SimProcess] = []
        self._under_way: dict[int, Fault] = {}
        self._snapshots: dict[int, object] = {}
        self.healed = False

    def begin(self) -> None:
        """Arm all faults."""
        for number, fault in enumerate(self._world.plan.faults, 1):
            self._at(fault.at, lambda number=number, fault=fault: self._strike(number, fault))
            if fault.kind == "failover":
                self._at(max(0.0, fault.at - fault.much), lambda fault=fault: self._remember(fault))

    def heal(self) -> None:
        """Put everything right."""
        for number, fault in list(self._under_way.items()):
            self._end(number, fault)
        for process in self._frozen:
            self._world.loop.go_on(process)
        self.healed = True
        network = self._world.network
        network.down = network.hung = False
        network.weather = Weather()
        network.links.clear()
        for machine in self._world.machines:
            machine.start_again()

    def _at(self, seconds: float, call: object) -> None:
        loop = self._world.loop
        loop.call_at(START + seconds, call, context=loop.outside)  # type: ignore[arg-type]

    # --- one fault ------------------------------------------------------------------------------------------

    def _strike(self, number: int, fault: Fault) -> None:
        target = self._act(fault)
        if target is None:
            return
        details = {"seconds": f"{fault.seconds:.3f}", "much": f"{fault.much:.3f}"}
        if fault.kind == "failover":
            details["lost_seconds"] = details["much"]
        self._world.harness.write(
            history.Nemesis(number=number, kind=fault.kind, target=target, details=details)
        )
        self._under_way[number] = fault
        loop = self._world.loop
        loop.call_later(fault.seconds, self._end, number, fault, context=loop.outside)

    def _end(self, number: int, fault: Fault) -> None:
        if self._under_way.pop(number, None) is None or self.healed:
            return
        self._undo(fault)
        self._world.harness.write(history.Nemesis(number=number, kind=fault.kind, action="end"))

    def _act(self, fault: Fault) -> str | None:
        """Do it; who was hit, or None if there was nobody."""
        network = self._world.network
        match fault.kind:
            case "kill child" | "freeze child" | "link cut":
                child = self._child(fault)
                return None if child is None else self._hit(fault, child)
            case "kill supervisor" | "lose power" | "stop worker" | "freeze machine" | "heart cut":
                machine = self._machine(fault)
                return None if machine is None else self._befall(fault, machine)
            case "store down":
                network.down = True
            case "store hangs":
                network.hung = True
            case "failover":
                self._fail_over(fault)
            case "messages lost":
                network.weather = Weather(loss=fault.much)
            case "messages doubled":
                network.weather = Weather(twice=fault.much)
            case _:
                network.weather = Weather(latency=(0.05, fault.much))
        return "store"

    def _hit(self, fault: Fault, child: "SimChild") -> str:
        if fault.kind == "kill child":
            child.kill()
        elif fault.kind == "freeze child":
            child.process.frozen = True
            self._frozen.append(child.process)
        else:
            self._world.network.links[child.process.name] = Weather(cut=True)
        return child.process.name

    def _befall(self, fault: Fault, machine: "Machine") -> str:
        match fault.kind:
            case "kill supervisor":
                machine.kill_supervisor()
            case "lose power":
                machine.lose_power()
            case "stop worker":
                machine.stop()
            case "heart cut":
                assert machine.process is not None
                self._world.network.links[machine.process.name] = Weather(cut=True)
            case _:
                self._frozen += machine.freeze()
        return machine.name

    def _undo(self, fault: Fault) -> None:
        network = self._world.network
        match fault.kind:
            case "freeze child" | "freeze machine":
                for process in self._frozen:
                    self._world.loop.go_on(process)
                self._frozen.clear()
            case "kill supervisor" | "lose power" | "stop worker":
                for machine in self._world.machines:
                    machine.start_again()
            case "store down":
                network.down = False
            case "store hangs":
                network.hung = False
            case "link cut" | "heart cut":
                network.links.clear()
            case _:
                network.weather = Weather()

    # --- a failover that loses writes -----------------------------------------------------------------------

    def _remember(self, fault: Fault) -> None:
        space = self._world.store._ns  # pyright: ignore[reportPrivateUsage]
        kept = (space.clock, space.bells, space.options)
        self._snapshots[id(fault)] = copy.deepcopy(space, {id(each): each for each in kept})

    def _fail_over(self, fault: Fault) -> None:
        """A replica takes over that had not heard of the last writes."""
        self._world.store._ns = self._snapshots[id(fault)]  # type: ignore[assignment]
        self._world.network.era += 1

    # --- who is hit -----------------------------------------------------------------------------------------

    def _machine(self, fault: Fault) -> "Machine | None":
        machine = self._world.machines[fault.machine % len(self._world.machines)]
        return None if machine.process is None or not machine.process.runs else machine

    def _child(self, fault: Fault) -> "SimChild | None":
        machine = self._machine(fault)
        alive = [child for child in machine.alive if child.process.session] if machine else []
        return alive[fault.child % len(alive)] if alive else None
