# Error against cost for a window and for samples, a panel per decay and kind of values.
set datafile separator "\t"
decays = "'ALiBi, sigma 256' 'KERPLE-power 0.3, 0.3' 'KERPLE-log 1, 0.1' 'KERPLE-log 0.5, 0.1'"
pick(values, decay, method, x) = strcol(1) eq values && strcol(2) eq decay && strcol(3) eq method ? x : NaN
do for [format in "svg png"] {
    if (format eq "svg") { set terminal svg size 1200,600 font "sans,12" background "white" } \
    else { set terminal pngcairo size 1200,600 font "sans,10" }
    set output "plot.".format
    set multiplot layout 2,4 title "Causal attention, n = 16384: what a scored pair buys (lower left is better)"
    set logscale xy
    set format x "10^{%T}"
    set format y "10^{%T}"
    set xrange [10:10000]
    set yrange [1e-4:20]
    set grid
    do for [values in "noise trend"] {
        do for [decay in decays] {
            set title decay.", values: ".values
            set xlabel "pairs scored per query"
            set ylabel "rms error"
            set key top right font ",8"
            plot "data.tsv" skip 1 using (pick(values, decay, "window", $5)):6 with linespoints pt 7 lc rgb "#d95f02" title "window", \
                 "data.tsv" skip 1 using (pick(values, decay, "plsh", $5)):6 with points pt 5 lc rgb "#1b5e9e" title "plsh, one pass", \
                 "data.tsv" skip 1 using (pick(values, decay, "plsh-mean", $5)):6 with points pt 4 lc rgb "#1b5e9e" title "plsh, mean of 8 passes"
        }
    }
    unset multiplot
}
