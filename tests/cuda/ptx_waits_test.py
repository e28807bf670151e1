"""tests/cuda/ptx_waits.py on small kernels, written as nvcc writes them."""
import unittest

import ptx_waits


def kernel(body, target="sm_90"):
    return (f".version 9.0\n.target {target}\n.address_size 64\n\n.visible .entry small(\n"
            "\t.param .u64 small_param_0\n)\n.maxntid 128, 1, 1\n{\n" + body + "\n}\n")


BEGIN = """
	.reg .pred 	%p<3>;
	.reg .b64 	%rd<4>;
	.loc	1 12 0
	ld.param.u64 	%rd1, [small_param_0];
"""
WAIT = """
	// begin inline asm
	griddepcontrol.wait;
	// end inline asm
"""
TOUCH = "\n\tst.global.f32 \t[%rd1], %f1;\n"
SPIN = """
	// begin inline asm
	{
.reg .pred done;
again:
mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], %r2;
@!done bra again;
}
	// end inline asm
"""


class Waits(unittest.TestCase):
    def says(self, body, *sentences):
        got = ptx_waits.complaints(kernel(body))
        self.assertEqual(len(got), len(sentences), got)
        for sentence in sentences:
            self.assertTrue(any(sentence in what for _, what in got), got)

    def test_who_waits_first_is_right(self):
        self.says(BEGIN + WAIT + TOUCH + "\tret;")

    def test_an_access_in_front_is_found(self):
        self.says(BEGIN + TOUCH + WAIT + "\tret;", "st.global.f32 [%rd1], %f1")
        self.assertEqual(ptx_waits.complaints(kernel(BEGIN + TOUCH + WAIT + "\tret;"))[0][0], "small")
        for access in ("ld.global.nc.f32 %f1, [%rd1]", "ld.f32 %f1, [%rd1]", "ld.volatile.global.u32 %r1, [%rd1]",
                       "atom.global.add.u32 %r1, [%rd1], 1", "red.global.add.u32 [%rd1], 1",
                       "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1]", "cp.async.ca.shared.global [%r1], [%rd1], 16",
                       "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16"):
            self.says(BEGIN + f"\t{access};\n" + WAIT + "\tret;", access)

    def test_shared_memory_and_bulk_copies_of_weights_are_let_through(self):
        for access in ("st.shared.f32 [%r1], %f1", "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r5]",
                       "mbarrier.init.shared::cta.b64 [%r1], %r2", "ld.shared::cluster.f32 %f1, [%r1]",
                       "cp.async.bulk.prefetch.L2.global [%rd1], %r1",
                       "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                       "[%r1], [%rd1], %r2, [%r3], %rd2"):
            self.says(BEGIN + f"\t{access};\n" + WAIT + "\tret;")

    def test_one_branch_that_goes_around_the_wait_is_found(self):
        around = "\tsetp.eq.s32 %p1, %r1, 0;\n\t@%p1 bra $L__BB0_2;\n" + WAIT + "$L__BB0_2:" + TOUCH + "\tret;"
        self.says(BEGIN + around, "st.global", "ends without waiting")

    def test_branches_that_all_wait_are_right(self):
        both = ("\t@%p1 bra $L__BB0_2;\n" + WAIT + "\tbra.uni $L__BB0_3;\n$L__BB0_2:" + SPIN + WAIT + "$L__BB0_3:" +
                TOUCH + "\tret;")
        self.says(BEGIN + both)

    def test_a_jump_back_does_not_count_as_having_waited(self):
        loop = "\tbra.uni $L__BB0_2;\n$L__BB0_1:" + TOUCH + "\tret;\n$L__BB0_2:\n\t@%p1 bra $L__BB0_1;\n" + WAIT + "\tret;"
        self.says(BEGIN + loop, "st.global", "ends without waiting")

    def test_equal_labels_in_braces_are_each_their_own(self):
        self.says(BEGIN + SPIN + SPIN + WAIT + SPIN + TOUCH + "\tret;")
        self.says(BEGIN + SPIN + TOUCH + SPIN + WAIT + "\tret;", "st.global")

    def test_a_wait_under_a_condition_is_none(self):
        self.says(BEGIN + "\t@%p1 griddepcontrol.wait;" + TOUCH + "\tret;", "st.global", "ends without waiting")

    def test_who_never_waits_is_found(self):
        self.says(BEGIN + "\tret;", "ends without waiting")

    def test_a_table_of_targets_leads_to_all_of_them(self):
        table = ("ts: .branchtargets $L1, $L2;\n\tbrx.idx \t%r1, ts;\n$L1:" + WAIT + "\tret;\n$L2:" + TOUCH + WAIT + "\tret;")
        self.says(BEGIN + table, "st.global")

    def test_older_devices_do_not_overlap(self):
        self.assertEqual(ptx_waits.complaints(kernel(BEGIN + TOUCH + "\tret;", "sm_80")), [])


if __name__ == "__main__":
    unittest.main()
