# The load steps from $1 to $2: each a bit more load at the tip, and a restart file that replaces the one before.
for n in $(seq "$1" "$2"); do
    printf '*STEP\n*STATIC\n1., 1.\n*RESTART, WRITE, FREQUENCY=1, OVERLAY\n'
    printf '*CLOAD\nTIP, 3, 0.%04d\n*NODE PRINT, NSET=TIP\nU\n*END STEP\n' "$n"
done
