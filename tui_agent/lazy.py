"""Sequences whose elements are made when they are accessed."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

from typing_extensions import override

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence of so many elements as `__len__` says; a slice of it is a list."""

    @abstractmethod
    def element(self, place: int) -> T:
        """The element at an index from 0 on that is in range."""

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    @override
    def __getitem__(self, index: int | slice) -> T | list[T]:
        places = range(len(self))[index]
        return self.element(places) if isinstance(places, int) else list(map(self.element, places))
