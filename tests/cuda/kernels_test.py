#!/usr/bin/env python3
"""What the compiler made of every kernel, without a GPU: registers against kernels/cuda/budget.txt, no spills, no stack,
no local memory, no double precision or float atomics where they do not belong, matrix instructions where they do, and
no memory touched before the wait for earlier kernels.

usage: kernels_test.py REPORTS BUDGET [--update]     REPORTS: a folder per .cu with ptxas.log, *.ptx, *.cubin
       kernels_test.py --ptx FOLDER                  only the PTX: a file per .cu
"""
import collections
import pathlib
import re
import struct
import subprocess
import sys

import ptx_waits

# The low 12 bits of an instruction; two of them reach local memory. (PTX may name it: ptxas keeps small arrays in
# registers, so only its reports and its instructions count.)
LOCAL_OPCODES = {0x983: "LDL", 0x387: "STL"}
HMMA = 0x23C
ACQBULK = 0x82E  # the wait for earlier kernels
GLOBAL_OPCODES = {0x980: "LD", 0x981: "LDG", 0x985: "ST", 0x986: "STG", 0x9A8: "ATOMG", 0x98E: "RED"}
DOUBLES_ALLOWED = {"choose", "choose_slices"}  # scores and noise are double on every device
MATRIX_KERNELS = re.compile(r"^matmul_(simple|ring)<|^attention<.*true>")
DTYPES = ["f32", "bf16", "f16", "i8", "fp8"]
FORBIDDEN_PTX = [
    (re.compile(r"\b(atom|red)\.[\w.:]*\.(f16|bf16|f32|f64)[x\w]*\b"), "an atomic on floats"),
]
DOUBLE = re.compile(r"\b(add|sub|mul|fma|mad|div|rcp|sqrt)\.[\w.]*f64\b")


def demangle(names):
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, out.splitlines()))


def short(demangled):
    """foretoken::cuda::(anonymous namespace)::f_kernel<(foretoken::DType)1, 4>(...) -> f<bf16,4>"""
    name = re.search(r"(\w+?)(?:_kernel)?(<[^()]*(?:\([^()]*\)[^()]*)*>)?\((?:foretoken|$)", demangled)
    arguments = name[2] or ""
    arguments = re.sub(r"\(foretoken::DType\)(\d)", lambda m: DTYPES[int(m[1])], arguments)
    arguments = re.sub(r"\(foretoken::cuda::(\w+)\)(\d)", r"\1\2", arguments)
    return name[1] + arguments.replace(" ", "")


class Kernel:
    registers = shared = stack = spills = None


def read_log(path):
    """(mangled, architecture) -> Kernel"""
    kernels, current = {}, None
    for line in path.read_text().splitlines():
        if m := re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+)'", line):
            current = kernels.setdefault((m[1], m[2]), Kernel())
        elif current is not None and (m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            current.stack, current.spills = int(m[1]), int(m[2]) + int(m[3])
        elif current is not None and (m := re.search(r"Used (\d+) registers", line)):
            current.registers = int(m[1])
            smem = re.search(r"(\d+) bytes smem", line)
            current.shared = int(smem[1]) if smem else 0
    return kernels


def opcodes(cubin):
    """mangled name -> Counter of opcodes, in the order in which they first stand, from the .text sections of an ELF file"""
    data = cubin.read_bytes()
    if data[:4] != b"\x7fELF":
        raise ValueError(f"{cubin} is not an ELF file")
    at, = struct.unpack_from("<Q", data, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", data, at + i * size) for i in range(count)]
    names = sections[names_index]
    found = {}
    for name, _, _, _, offset, length in sections:
        begin = names[4] + name
        text = data[begin:data.index(b"\0", begin)].decode()
        if not text.startswith(".text."):
            continue
        words = struct.iter_unpack("<QQ", data[offset:offset + length])
        found[text[len(".text."):]] = collections.Counter(low & 0xFFF for low, _ in words)
    return found


def judge_ptx(ptx, kernel, names):
    """What is wrong with a file of PTX of the source `kernel`; names: mangled -> demangled."""
    wrong, text = [], ptx.read_text()
    for pattern, what in FORBIDDEN_PTX:
        if m := pattern.search(text):
            wrong.append(f"{ptx.name}: {what}: {m[0].strip()}")
    for mangled, what in ptx_waits.complaints(text):
        label = short(names[mangled]) if mangled in names else mangled
        wrong.append(f"{ptx.name}: {label}: before it has waited for earlier kernels: {what}")
    if kernel not in DOUBLES_ALLOWED and (m := DOUBLE.search(text)):
        wrong.append(f"{ptx.name}: double precision: {m[0]}")
    return wrong


def judge_ptx_alone(folder):
    wrong, n_kernels = [], 0
    for ptx in sorted(folder.glob("*.ptx")):
        mangled = sorted(set(re.findall(r"\.entry (\w+)", ptx.read_text())))
        wrong += judge_ptx(ptx, ptx.stem, demangle(mangled) if mangled else {})
        n_kernels += len(mangled)
    for sentence in wrong:
        print(sentence)
    print(f"{n_kernels} kernels")
    sys.exit(1 if wrong or n_kernels == 0 else 0)


def main():
    if sys.argv[1] == "--ptx":
        judge_ptx_alone(pathlib.Path(sys.argv[2]))
    reports, budget_path = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    wrong, table = [], {}
    folders = sorted(p for p in reports.iterdir() if (p / "ptxas.log").is_file()) if reports.is_dir() else []
    if not folders:
        sys.exit(f"no reports under {reports}: build the target foretoken_cuda first")
    for folder in folders:
        kernels = read_log(folder / "ptxas.log")
        names = demangle(sorted({name for name, _ in kernels})) if kernels else {}
        for (mangled, architecture), kernel in kernels.items():
            label = f"{short(names[mangled])} sm_{architecture}"
            if label in table:
                wrong.append(f"{label}: two kernels share this name")
            table[label] = kernel
            if kernel.registers is None or kernel.stack is None:
                wrong.append(f"{label}: the compiler's report is not understood")
                continue
            if kernel.spills or kernel.stack:
                wrong.append(f"{label}: {kernel.spills} bytes of spills, {kernel.stack} bytes of stack")
        for ptx in sorted(folder.glob("*.ptx")):
            wrong += judge_ptx(ptx, folder.name, names)
        cubins = sorted(folder.glob("*.cubin"))
        if kernels and len(cubins) != len({a for _, a in kernels}):
            wrong.append(f"{folder.name}: {len(cubins)} cubins for {len({a for _, a in kernels})} architectures")
        for cubin in cubins:
            for mangled, counts in opcodes(cubin).items():
                label = short(names[mangled]) if mangled in names else mangled
                for opcode, name in LOCAL_OPCODES.items():
                    if counts[opcode]:
                        wrong.append(f"{cubin.name}: {label}: {counts[opcode]} x {name}")
                # The wait is the first that all but the ring do; what PTX has behind it ptxas must not have moved in front.
                if "90" in cubin.name and not label.startswith("matmul_ring"):
                    order = list(counts)
                    early = order[:order.index(ACQBULK)] if ACQBULK in counts else order
                    for opcode in early:
                        if opcode in GLOBAL_OPCODES:
                            wrong.append(f"{cubin.name}: {label}: {GLOBAL_OPCODES[opcode]} before the wait for earlier kernels")
                empty = "ring" in label and "80" in cubin.name  # these are for sm_90
                if MATRIX_KERNELS.match(label) and not empty and not counts[HMMA]:
                    wrong.append(f"{cubin.name}: {label}: no matrix instruction")
    if "--update" in sys.argv:
        lines = ["# kernel, architecture, most registers a thread, bytes of static shared memory. Written by",
                 "# tests/cuda/kernels_test.py REPORTS kernels/cuda/budget.txt --update; a rise needs a reason in the commit."]
        lines += [f"{label} {k.registers} {k.shared}" for label, k in sorted(table.items())]
        budget_path.write_text("\n".join(lines) + "\n")
    budget = {}
    for line in budget_path.read_text().splitlines():
        if line and not line.startswith("#"):
            label, registers, shared = line.rsplit(" ", 2)
            budget[label] = (int(registers), int(shared))
    for label, kernel in table.items():
        if label not in budget:
            wrong.append(f"{label}: not in {budget_path.name}")
        elif kernel.registers is not None and (kernel.registers > budget[label][0] or kernel.shared > budget[label][1]):
            wrong.append(f"{label}: {kernel.registers} registers, {kernel.shared} bytes of shared memory; "
                         f"the budget is {budget[label][0]} and {budget[label][1]}")
    wrong += [f"{label}: in {budget_path.name}, but no such kernel was compiled" for label in budget if label not in table]
    for sentence in wrong:
        print(sentence)
    worst = max(table.items(), key=lambda item: item[1].registers or 0)
    print(f"{len(table)} kernels; most registers: {worst[1].registers} ({worst[0]})")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
