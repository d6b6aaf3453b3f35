# trade-off.svg and growth.svg (and .png) from the data files in the folder ARG1.
set datafile separator "\t"
set grid
set logscale xy
colours = "#555555 #1b9e77 #d95f02 #1b5e9e #88aadd"
do for [format in "svg png"] {
    if (format eq "svg") { set terminal svg size 760,480 font "sans,13" background "white" } \
    else { set terminal pngcairo size 760,480 font "sans,11" }
    set output ARG1."/trade-off.".format
    set title "Error against time, n = 16384, sigma 64 (lower left is better)"
    set xlabel "milliseconds"
    set ylabel "largest error against double precision"
    set format y "10^{%T}"
    set key top right
    plot for [i=0:4] ARG1."/trade-off.tsv" index i using (1e3 * $2):3 with linespoints pt 7 \
         lc rgb word(colours, i + 1) title word("dense exact window plsh,stratified plsh,iid", i + 1)
    set output ARG1."/growth.".format
    set title "Time against context, sigma 64"
    set xlabel "context n"
    set ylabel "milliseconds"
    set format y "%g"
    set key top left
    plot for [i=0:2] ARG1."/growth.tsv" index i using 1:(1e3 * $2) with linespoints pt 7 \
         lc rgb word("#555555 #1b9e77 #1b5e9e", i + 1) title word("dense exact plsh", i + 1)
}
