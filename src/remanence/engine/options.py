"""The `[engine]` table."""

from typing import Annotated, Literal

from pydantic import Field

from remanence.registry import options


@options
class EngineOptions:
    name: Literal["local"] = "local"
    workers: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = Field(
        "auto", description="worker processes; 1 = train in this process"
    )
    cohort: Literal["auto", "on", "off"] = Field("auto", description="train many small dense models in one stack")
    precision: Literal["float32", "bfloat16"] = Field("float32", description="bfloat16 is quicker and less exact")
    quorum: float = Field(1.0, gt=0, le=1, description="share of the selected devices whose uploads end a round")
    deadline: float = Field(0.0, ge=0, description="seconds after which uploads are refused; 0 = none")
    lost: float = Field(0.0, ge=0, lt=1, description="share of uploads that get lost, to see what a method does then")
    largest_upload: int = Field(2**31, gt=0, description="bytes; larger uploads are refused")
