# The first start: all load steps.
{ sh mesh.sh; sh steps.sh 1 "${STEPS:-40}"; } > beam.inp
exec ccx beam
